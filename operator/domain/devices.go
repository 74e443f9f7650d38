// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import "libvirt.org/go/libvirtxml"

func (s Spec) devices() *libvirtxml.DomainDeviceList {
	devices := &libvirtxml.DomainDeviceList{
		Disks:      s.disks(),
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
	// Nothing is on a USB bus, and a controller would cost the host a poll every millisecond.
	devices.Controllers = []libvirtxml.DomainController{{Type: "usb", Model: "none"}}
	if s.usesSCSI() {
		// libvirt would add an LSI controller, for which enterprise guests have no driver.
		devices.Controllers = append(devices.Controllers, libvirtxml.DomainController{Type: "scsi", Index: new(uint), Model: "virtio-scsi"})
	}
	if s.VCPUs > maxXAPIC {
		// A processor with a number above 255 gets interrupts only through an IOMMU.
		devices.IOMMU = &libvirtxml.DomainIOMMU{Model: "intel", Driver: &libvirtxml.DomainIOMMUDriver{IntRemap: "on", EIM: "on"}}
	}
	return devices
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
// does not grow from one life to the next. The log is written by virtlogd, which bounds it: in libvirt's own settings, the
// file and up to three older ones (.0 to .2) have 2 MiB each.
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
