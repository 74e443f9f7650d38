// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

func (s Spec) validate() error {
	if err := s.validateTexts(); err != nil {
		return err
	}
	if _, ok := firstDisk[s.RootDisk.bus()]; !ok {
		return fmt.Errorf("the root disk's bus %q is none of virtio, scsi and sata", s.RootDisk.Bus)
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
	case s.VCPUs == 0:
		return errors.New("the number of vCPUs is 0")
	case s.MemoryMiB == 0:
		return errors.New("the memory is 0 MiB")
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
		{"root disk's pool", s.RootDisk.Pool, false},
		{"root disk's volume", s.RootDisk.Volume, false},
		{"root disk's format", s.RootDisk.Format, false},
		{"network's name", s.Network.Name, false},
		{"network card's model", s.Network.Model, true},
		{"Ignition config's path", s.IgnitionPath, true},
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
