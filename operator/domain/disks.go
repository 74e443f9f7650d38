// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import "libvirt.org/go/libvirtxml"

// The buses of disks.
const (
	busVirtIO = "virtio"
	busSCSI   = "scsi"
	busSATA   = "sata"
)

// diskPrefix is what the names of a bus' disks begin with. SCSI and SATA disks share one sequence of names.
var diskPrefix = map[string]string{busVirtIO: "vd", busSCSI: "sd", busSATA: "sd"}

// sataPorts is the number of ports of a SATA controller.
const sataPorts = 6

// letters is the number of letters that names of disks are counted with: sda to sdz, sdaa and so on.
const letters = 26

// disks returns the root disk, the further ones in their order, and the seed or the Ignition config at the end, so that no other disk has
// another name because of it.
func (s Spec) disks() []libvirtxml.DomainDisk {
	places := &places{names: map[string]uint{}, units: map[string]uint{}}
	root := s.RootDisk.device(places)
	// The only device with an order: neither firmware tries another one, be it a data disk with an old system on it or the
	// network.
	root.Boot = &libvirtxml.DomainDeviceBoot{Order: 1}
	all := []libvirtxml.DomainDisk{root}
	for _, d := range s.Disks {
		all = append(all, d.device(places))
	}
	if s.SeedPath != "" {
		all = append(all, seed(s.SeedPath, s.RootDisk.bus(), places))
	}
	if s.IgnitionDiskPath != "" {
		all = append(all, ignitionDisk(s.IgnitionDiskPath, places))
	}
	return all
}

// usesSCSI says whether any disk is on the SCSI bus. The seed goes where the root disk is.
func (s Spec) usesSCSI() bool {
	for _, d := range append([]Disk{s.RootDisk}, s.Disks...) {
		if d.bus() == busSCSI {
			return true
		}
	}
	return false
}

// device returns the disk. Its cache mode is "writeback": the host's page cache is used, and a guest's flush reaches the
// storage, so that no more is lost with the host's power than on a disk of its own. "none" would need O_DIRECT, which tmpfs
// has since Linux 6.6 only, and would gain nothing there: the page cache is the storage.
// Discarded blocks and written zeroes go back to the pool, which matters most where the pool is memory.
func (d Disk) device(places *places) libvirtxml.DomainDisk {
	target, address := places.next(d.bus())
	return libvirtxml.DomainDisk{
		Device: "disk",
		Driver: &libvirtxml.DomainDiskDriver{
			Name: "qemu", Type: d.Format, Cache: "writeback", Discard: "unmap", DetectZeros: "unmap",
		},
		Source:  &libvirtxml.DomainDiskSource{Volume: &libvirtxml.DomainDiskSourceVolume{Pool: d.Pool, Volume: d.Volume}},
		Target:  target,
		Serial:  d.Serial,
		Address: address,
	}
}

func (d Disk) bus() string {
	if d.Bus == "" {
		return busVirtIO
	}
	return d.Bus
}

// seed returns the disk with the image for cloud-init, which finds it by its label. It is on the root disk's bus, the only one
// that the guest must have a driver for: kernels that are made for clouds have none for SATA. It is a plain disk where
// that can be read-only, because they may have none for CD drives either.
func seed(path, bus string, places *places) libvirtxml.DomainDisk {
	target, address := places.next(bus)
	device := "disk"
	if bus == busSATA {
		device = "cdrom"
	}
	return libvirtxml.DomainDisk{
		Device:   device,
		Driver:   &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw", Cache: "writeback"},
		Source:   &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: path}},
		Target:   target,
		ReadOnly: &libvirtxml.DomainDiskReadOnly{},
		Address:  address,
	}
}

// places gives out names and addresses, in the order of asking.
type places struct {
	// names counts the names with a prefix, units the disks of a bus.
	names, units map[string]uint
}

// next returns the next name of the bus, and the disk's address on it. libvirt would derive an address from the name, as if
// SCSI and SATA disks were on one controller, and would add controllers that guests have no driver for to make room.
func (p *places) next(bus string) (*libvirtxml.DomainDiskTarget, *libvirtxml.DomainAddress) {
	prefix := diskPrefix[bus]
	target := &libvirtxml.DomainDiskTarget{Dev: prefix + letter(p.names[prefix]), Bus: bus}
	unit := p.units[bus]
	p.names[prefix]++
	p.units[bus]++
	var zero, controller uint
	switch bus {
	case busSCSI:
	case busSATA:
		controller, unit = unit/sataPorts, unit%sataPorts
	default:
		return target, nil
	}
	return target, &libvirtxml.DomainAddress{
		Drive: &libvirtxml.DomainAddressDrive{Controller: &controller, Bus: &zero, Target: &zero, Unit: &unit},
	}
}

// letter returns a, b, … z, aa, ab and so on.
func letter(n uint) string {
	last := string(rune('a' + n%letters))
	if n < letters {
		return last
	}
	return letter(n/letters-1) + last
}
