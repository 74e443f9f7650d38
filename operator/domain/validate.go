// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

func (s Spec) validate() error {
	if err := s.validateTexts(); err != nil {
		return err
	}
	if err := s.validateDisks(); err != nil {
		return err
	}
	if err := s.validateBoot(); err != nil {
		return err
	}
	if mac, err := net.ParseMAC(s.Network.MAC); err != nil || len(mac) != macLength {
		return fmt.Errorf("the MAC address %q is not of the form 52:54:00:12:34:56", s.Network.MAC)
	}
	if _, err := uuid.Parse(s.UUID); err != nil {
		return fmt.Errorf("the UUID %q: %w", s.UUID, err)
	}
	switch {
	case s.VirtType != VirtTypeKVM && s.VirtType != VirtTypeQEMU:
		return fmt.Errorf("the virtualization type %q is neither kvm nor qemu", s.VirtType)
	case s.Firmware != FirmwareUEFI && s.Firmware != FirmwareBIOS:
		return fmt.Errorf("the firmware %q is neither uefi nor bios", s.Firmware)
	case s.Firmware == FirmwareUEFI && s.NVRAMTemplatePath != "" && s.LoaderPath == "":
		return errors.New("a template for the UEFI variables is named without the loader that it goes with")
	case s.Network.Type != NICTypeBridge && s.Network.Type != NICTypeNetwork:
		return fmt.Errorf("the network type %q is neither bridge nor network", s.Network.Type)
	case s.Network.Type == NICTypeNetwork && s.Session:
		return fmt.Errorf("the network %q is one of libvirt's, which a session's daemon cannot use; name a bridge of the host", s.Network.Name)
	case s.VCPUs == 0:
		return errors.New("the number of vCPUs is 0")
	case s.VCPUs > maxXAPIC && (s.VirtType != VirtTypeKVM || !isQ35(s.machine())):
		return fmt.Errorf("%d vCPUs are more than %d, which need KVM and the machine type q35", s.VCPUs, maxXAPIC)
	case s.MemoryMiB == 0:
		return errors.New("the memory is 0 MiB")
	}
	return nil
}

// isQ35 says whether a machine type is q35 or a version of it, such as pc-q35-7.2 and pc-q35-rhel9.4.0.
func isQ35(machine string) bool {
	return machine == DefaultMachine || strings.HasPrefix(machine, "pc-q35-")
}

// serialPattern is what QEMU accepts on every bus.
var serialPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{0,20}$`)

func (s Spec) validateDisks() error {
	volumes, serials := map[Disk]string{}, map[string]string{}
	if s.IgnitionDiskPath != "" {
		serials[IgnitionSerial] = "Ignition config"
	}
	for i, d := range append([]Disk{s.RootDisk}, s.Disks...) {
		name := "root disk"
		if i > 0 {
			name = fmt.Sprintf("disk %d", i)
		}
		if err := errors.Join(text(name+"'s pool", d.Pool), text(name+"'s volume", d.Volume), text(name+"'s format", d.Format)); err != nil {
			return err
		}
		if _, ok := diskPrefix[d.bus()]; !ok {
			return fmt.Errorf("the %s's bus %q is none of virtio, scsi and sata", name, d.Bus)
		}
		if !serialPattern.MatchString(d.Serial) {
			return fmt.Errorf("the %s's serial %q is not made of up to 20 letters, digits, dots, dashes and underscores", name, d.Serial)
		}
		if other, taken := serials[d.Serial]; taken && d.Serial != "" {
			return fmt.Errorf("the %s's serial %q is also that of the %s", name, d.Serial, other)
		}
		volume := Disk{Pool: d.Pool, Volume: d.Volume}
		if other, taken := volumes[volume]; taken {
			return fmt.Errorf("the %s's volume %q is also that of the %s", name, d.Volume, other)
		}
		serials[d.Serial], volumes[volume] = name, name
	}
	return nil
}

func (s Spec) validateTexts() error {
	for _, field := range []struct {
		name, value string
		optional    bool
	}{
		{"name", s.Name, false},
		{"owner's namespace", s.Owner.Namespace, false},
		{"owner's name", s.Owner.Name, false},
		{"owner's UID", s.Owner.UID, false},
		{"machine type", s.Machine, true},
		{"loader's path", s.LoaderPath, true},
		{"NVRAM template's path", s.NVRAMTemplatePath, true},
		{"network's name", s.Network.Name, false},
		{"network card's model", s.Network.Model, true},
		{"Ignition config's path", s.IgnitionPath, true},
		{"Ignition disk's path", s.IgnitionDiskPath, true},
		{"kernel's path", s.Boot.Kernel, true},
		{"initramfs's path", s.Boot.Initramfs, true},
		{"kernel's command line", s.Boot.Args, true},
		{"seed's path", s.SeedPath, true},
		{"serial log's path", s.SerialLogPath, true},
	} {
		if field.value == "" && field.optional {
			continue
		}
		if err := text(field.name, field.value); err != nil {
			return err
		}
	}
	return nil
}

// text checks that XML can hold a value as it is. The encoder would replace what it cannot hold, and another object would be
// named.
func text(name, value string) error {
	if value == "" {
		return fmt.Errorf("the %s is empty", name)
	}
	if !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("the %s %q has characters that are not printable", name, value)
	}
	return nil
}
