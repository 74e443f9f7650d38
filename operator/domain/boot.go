// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"errors"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// IgnitionSerial is the serial number of the disk with the Ignition config: /dev/disk/by-id/virtio-ignition in the guest.
const IgnitionSerial = "ignition"

// DirectBoot is what QEMU loads by itself, so that neither firmware nor boot loader look for a system. It is used at every boot.
type DirectBoot struct {
	// Kernel and Initramfs are files on the host, both or none.
	Kernel, Initramfs string
	// Args is the kernel's command line.
	Args string
}

// BootArgs makes a command line of a text in which any white space, line breaks too, separates arguments.
func BootArgs(text string) string { return strings.Join(strings.Fields(text), " ") }

func (s Spec) validateBoot() error {
	switch {
	case (s.Boot.Kernel == "") != (s.Boot.Initramfs == ""):
		return errors.New("of kernel and initramfs, only one is named; a direct boot needs both")
	case s.Boot.Kernel == "" && s.Boot.Args != "":
		return errors.New("there is a command line without the kernel that it is for")
	case s.IgnitionPath != "" && s.IgnitionDiskPath != "":
		return errors.New("the Ignition config is both a disk and a file of fw_cfg; name one of them")
	}
	return nil
}

// ignitionDisk returns the disk that is the guest's Ignition config. It is a virtio disk whatever the root disk is: the name by which guests look for it has
// the bus in it.
func ignitionDisk(path string, places *places) libvirtxml.DomainDisk {
	disk := seed(path, busVirtIO, places)
	disk.Serial = IgnitionSerial
	return disk
}
