// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Observed is what a domain's definition on a host says.
type Observed struct {
	Name string
	UUID string
	// Owner is nil when the domain was not created by CAPLV, or does not say for whom.
	Owner *Owner
	// RootCloned is Spec.RootCloned; false when there is no owner.
	RootCloned bool
	// VCPUs is the maximum number of virtual CPUs; 0 when unknown.
	VCPUs uint
	// MemoryMiB is rounded down; 0 when unknown.
	MemoryMiB uint
	// NVRAMPath is the file with the UEFI variables; empty where there is none, or none yet.
	NVRAMPath string
	// Boot is what the domain boots instead of its disk's boot loader; empty for nothing.
	Boot  DirectBoot
	Disks []ObservedDisk
}

// ObservedDisk is a disk of a domain: either a volume of a storage pool, or the file or block device at Path.
type ObservedDisk struct {
	// Device is disk, cdrom, lun or floppy.
	Device string
	Pool   string
	Volume string
	Path   string
	// Target is the disk's name, such as vda.
	Target string
	Bus    string
	Format string
	Serial string
}

// The views below hold only what is read. libvirtxml's types would refuse a whole definition because of one number, in any
// device, that is written otherwise than its version expects, and a domain that cannot be read cannot be deleted.

type domainView struct {
	XMLName  xml.Name `xml:"domain"`
	Name     string   `xml:"name"`
	UUID     string   `xml:"uuid"`
	Metadata struct {
		Owners []struct {
			Namespace string `xml:"namespace,attr"`
			Name      string `xml:"name,attr"`
			UID       string `xml:"uid,attr"`
			RootDisk  string `xml:"rootDisk,attr"`
		} `xml:"https://caplv.github.io/xmlns/libvirt/v1 owner"`
	} `xml:"metadata"`
	VCPU   string       `xml:"vcpu"`
	Memory quantityView `xml:"memory"`
	NVRAM  struct {
		Path   string     `xml:",chardata"`
		Source sourceView `xml:"source"`
	} `xml:"os>nvram"`
	Kernel  string     `xml:"os>kernel"`
	Initrd  string     `xml:"os>initrd"`
	Cmdline string     `xml:"os>cmdline"`
	Disks   []diskView `xml:"devices>disk"`
}

type diskView struct {
	Device string `xml:"device,attr"`
	Driver struct {
		Type string `xml:"type,attr"`
	} `xml:"driver"`
	Serial string     `xml:"serial"`
	Source sourceView `xml:"source"`
	Target struct {
		Dev string `xml:"dev,attr"`
		Bus string `xml:"bus,attr"`
	} `xml:"target"`
}

type sourceView struct {
	Pool   string `xml:"pool,attr"`
	Volume string `xml:"volume,attr"`
	File   string `xml:"file,attr"`
	Dev    string `xml:"dev,attr"`
}

type quantityView struct {
	Unit  string `xml:"unit,attr"`
	Value string `xml:",chardata"`
}

// Parse reads the output of virsh dumpxml. It returns an error only when that is not the XML of a domain with name and UUID;
// whatever else it does not understand is left out.
func Parse(domainXML string) (Observed, error) {
	var view domainView
	if err := xml.Unmarshal([]byte(domainXML), &view); err != nil {
		return Observed{}, fmt.Errorf("reading the domain's XML: %w", err)
	}
	if view.Name == "" || view.UUID == "" {
		return Observed{}, errors.New("reading the domain's XML: it has no name or no UUID")
	}
	seen := Observed{Name: view.Name, UUID: strings.ToLower(strings.TrimSpace(view.UUID))}
	// libvirt keeps one element of a namespace. Where there are more, none of them is believed.
	if owners := view.Metadata.Owners; len(owners) == 1 && owners[0].UID != "" {
		seen.Owner = &Owner{Namespace: owners[0].Namespace, Name: owners[0].Name, UID: owners[0].UID}
		seen.RootCloned = owners[0].RootDisk == rootComplete
	}
	if n, err := strconv.ParseUint(strings.TrimSpace(view.VCPU), 10, 32); err == nil {
		seen.VCPUs = uint(n)
	}
	if size, ok := view.Memory.bytes("KiB"); ok && size>>20 <= math.MaxUint {
		seen.MemoryMiB = uint(size >> 20)
	}
	seen.NVRAMPath = strings.TrimSpace(view.NVRAM.Path)
	if seen.NVRAMPath == "" {
		seen.NVRAMPath = view.NVRAM.Source.File
	}
	seen.Boot = DirectBoot{Kernel: view.Kernel, Initramfs: view.Initrd, Args: view.Cmdline}
	for _, disk := range view.Disks {
		path := disk.Source.File
		if path == "" {
			path = disk.Source.Dev
		}
		seen.Disks = append(seen.Disks, ObservedDisk{
			Device: disk.Device, Pool: disk.Source.Pool, Volume: disk.Source.Volume, Path: path,
			Target: disk.Target.Dev, Bus: disk.Target.Bus, Format: disk.Driver.Type, Serial: disk.Serial,
		})
	}
	return seen, nil
}

// units holds libvirt's units of sizes, in lower case, in bytes.
var units = map[string]uint64{
	"b": 1, "byte": 1, "bytes": 1,
	"kb": 1e3, "k": 1 << 10, "kib": 1 << 10,
	"mb": 1e6, "m": 1 << 20, "mib": 1 << 20,
	"gb": 1e9, "g": 1 << 30, "gib": 1 << 30,
	"tb": 1e12, "t": 1 << 40, "tib": 1 << 40,
	"pb": 1e15, "p": 1 << 50, "pib": 1 << 50,
	"eb": 1e18, "e": 1 << 60, "eib": 1 << 60,
}

// bytes returns the quantity in bytes, or false when it is not a quantity or too large. A quantity without unit has the
// given one.
func (q quantityView) bytes(unit string) (uint64, bool) {
	if q.Unit != "" {
		unit = q.Unit
	}
	scale, ok := units[strings.ToLower(unit)]
	if !ok {
		return 0, false
	}
	value, err := strconv.ParseUint(strings.TrimSpace(q.Value), 10, 64)
	if err != nil {
		return 0, false
	}
	overflow, size := bits.Mul64(value, scale)
	return size, overflow == 0
}
