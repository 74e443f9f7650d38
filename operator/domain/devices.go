// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import "libvirt.org/go/libvirtxml"

// The buses of disks, and the names that libvirt gives to the first disk of each.
const (
	busVirtIO = "virtio"
	busSCSI   = "scsi"
	busSATA   = "sata"
)

var firstDisk = map[string]string{busVirtIO: "vda", busSCSI: "sda", busSATA: "sda"}

func (s Spec) devices() *libvirtxml.DomainDeviceList {
	devices := &libvirtxml.DomainDeviceList{
		Disks:      []libvirtxml.DomainDisk{s.RootDisk.device()},
		Interfaces: []libvirtxml.DomainInterface{s.Network.device()},
		Serials:    []libvirtxml.DomainSerial{s.serial()},
		Channels: []libvirtxml.DomainChannel{{
			Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{}},
			Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: "org.qemu.guest_agent.0"}},
		}},
		RNGs: []libvirtxml.DomainRNG{{
			Model:   "virtio",
			Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
		}},
		// Nobody asks the guest for memory back, and libvirt would add a balloon by itself.
		MemBalloon: &libvirtxml.DomainMemBalloon{Model: "none"},
	}
	if s.RootDisk.Bus == busSCSI {
		// libvirt would add an LSI controller, for which enterprise guests have no driver.
		devices.Controllers = []libvirtxml.DomainController{{Type: "scsi", Model: "virtio-scsi"}}
	}
	return devices
}

// device returns the disk. Its cache mode is "writeback": the host's page cache is used, and a guest's flush reaches the
// storage, so that no more is lost with the host's power than on a disk of its own. "none" would need O_DIRECT, which tmpfs
// has since Linux 6.6 only, and would gain nothing there: the page cache is the storage.
// Discarded blocks go back to the pool, which matters most where the pool is memory.
func (d Disk) device() libvirtxml.DomainDisk {
	bus := d.bus()
	return libvirtxml.DomainDisk{
		Device: "disk",
		Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: d.Format, Cache: "writeback", Discard: "unmap"},
		Source: &libvirtxml.DomainDiskSource{Volume: &libvirtxml.DomainDiskSourceVolume{Pool: d.Pool, Volume: d.Volume}},
		Target: &libvirtxml.DomainDiskTarget{Dev: firstDisk[bus], Bus: bus},
	}
}

func (d Disk) bus() string {
	if d.Bus == "" {
		return busVirtIO
	}
	return d.Bus
}

func (n NIC) device() libvirtxml.DomainInterface {
	source := &libvirtxml.DomainInterfaceSource{}
	if n.Type == NICTypeBridge {
		source.Bridge = &libvirtxml.DomainInterfaceSourceBridge{Bridge: n.Name}
	} else {
		source.Network = &libvirtxml.DomainInterfaceSourceNetwork{Network: n.Name}
	}
	model := n.Model
	if model == "" {
		model = "virtio"
	}
	return libvirtxml.DomainInterface{
		MAC:    &libvirtxml.DomainInterfaceMAC{Address: n.MAC},
		Source: source,
		Model:  &libvirtxml.DomainInterfaceModel{Type: model},
	}
}

// serial returns the console. Its log begins anew at each start, so that it ends with the machine's memory of the host and
// does not grow from one life to the next.
func (s Spec) serial() libvirtxml.DomainSerial {
	port := uint(0)
	serial := libvirtxml.DomainSerial{
		Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}},
		Target: &libvirtxml.DomainSerialTarget{Port: &port},
	}
	if s.SerialLogPath != "" {
		serial.Log = &libvirtxml.DomainChardevLog{File: s.SerialLogPath, Append: "off"}
	}
	return serial
}
