// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package domain makes and reads libvirt's XML: of domains, storage pools and volumes. It knows nothing of Kubernetes
// objects or of the way to a host.
package domain

import (
	"encoding/xml"
	"fmt"

	"libvirt.org/go/libvirtxml"
)

// XMLNamespace is the namespace of the owner element in a domain's metadata.
const XMLNamespace = "https://caplv.github.io/xmlns/libvirt/v1"

// The values of Spec.VirtType, Spec.Firmware and NIC.Type.
const (
	VirtTypeKVM  = "kvm"
	VirtTypeQEMU = "qemu"

	FirmwareUEFI = "uefi"
	FirmwareBIOS = "bios"

	NICTypeBridge  = "bridge"
	NICTypeNetwork = "network"
)

// DefaultMachine is the machine type of a domain that names none.
const DefaultMachine = "q35"

// maxXAPIC is the number of vCPUs that interrupts reach without further ado.
const maxXAPIC = 255

// ignitionKey is the fw_cfg file that Ignition reads on QEMU.
const ignitionKey = "opt/com.coreos/config"

// Owner is the object that a domain belongs to, as it is recorded in the domain's metadata.
type Owner struct {
	Namespace string
	Name      string
	UID       string
}

// Spec describes a machine's domain.
type Spec struct {
	Name string
	// UUID is the result of the function UUID for the owner's UID.
	UUID  string
	Owner Owner
	// VirtType is kvm, or qemu for software emulation.
	VirtType string
	// Machine is QEMU's machine type, such as q35, pc or a version of one of them; empty is q35.
	Machine string
	// VCPUs may be more than 255 with KVM and q35 only.
	VCPUs     uint
	MemoryMiB uint
	// Firmware is uefi or bios.
	Firmware string
	// LoaderPath and NVRAMTemplatePath are the UEFI code image and the template of its variables on the host. Where both are
	// empty, libvirt selects a firmware without secure boot. Where only the template is empty, libvirt looks up the one
	// that goes with the loader.
	LoaderPath        string
	NVRAMTemplatePath string
	RootDisk          Disk
	// RootCloned says that the root disk's volume is a copy that was completed. The definition's metadata keep it, because
	// volumes have none, and a copy that was interrupted looks like a whole one.
	RootCloned bool
	// Disks are further disks, in the order in which they get their names on each bus.
	Disks   []Disk
	Network NIC
	// SeedPath is the ISO image on the host that the guest's cloud-init reads; empty for none.
	SeedPath string
	// Session says that the daemon is the one of an account. The definition is the same, but for what such a daemon cannot
	// give: libvirt's networks belong to the system's. All paths must be the account's own.
	Session bool
	// IgnitionPath is the file on the host that the guest reads as its Ignition config through fw_cfg; empty for none.
	IgnitionPath string
	// IgnitionDiskPath is the file on the host that the guest has as a disk with the serial number IgnitionSerial, its Ignition config; empty for none.
	IgnitionDiskPath string
	// Boot is what the guest boots instead of its disk's boot loader; empty for nothing.
	Boot DirectBoot
	// SerialLogPath is the file on the host that receives what the guest writes to its serial console, since the last
	// start; empty for none. It is bounded as the host's virtlogd.conf says, by default to 2 MiB and three older files beside it.
	SerialLogPath string
}

// Disk is a disk that is a volume of a storage pool.
type Disk struct {
	Pool   string
	Volume string
	// Bus is virtio, scsi or sata; empty is virtio.
	Bus string
	// Format is the volume's format, such as qcow2.
	Format string
	// Serial is what the guest knows the disk by, up to 20 letters, digits, dots, dashes and underscores; empty for none.
	Serial string
}

// NIC is a network interface.
type NIC struct {
	// Type is bridge or network.
	Type string
	// Name is the name of the host's bridge device or of the libvirt network.
	Name string
	// Model is QEMU's model; empty is virtio.
	Model string
	MAC   string
}

// XML returns the definition of the domain. It returns an error for a spec that cannot be expressed or that no host would
// accept; the error names the field.
func XML(spec Spec) (string, error) {
	if err := spec.validate(); err != nil {
		return "", fmt.Errorf("domain %q: %w", spec.Name, err)
	}
	metadata, err := ownerXML(spec.Owner, spec.RootCloned)
	if err != nil {
		return "", fmt.Errorf("domain %q: %w", spec.Name, err)
	}
	d := &libvirtxml.Domain{
		Type:     spec.VirtType,
		Name:     spec.Name,
		UUID:     spec.UUID,
		Metadata: &libvirtxml.DomainMetadata{XML: metadata},
		Memory:   &libvirtxml.DomainMemory{Value: spec.MemoryMiB, Unit: "MiB"},
		VCPU:     &libvirtxml.DomainVCPU{Placement: "static", Value: spec.VCPUs},
		OS:       spec.os(),
		SysInfo:  spec.sysInfo(),
		Features: spec.features(),
		CPU:      spec.cpu(),
		Clock:    &libvirtxml.DomainClock{Offset: "utc"},
		// A guest reboots once on its way into the cluster, when it has updated itself. One that has crashed is not what its
		// cluster believes it to be: it ends, and that is seen.
		OnPoweroff: "destroy",
		OnReboot:   "restart",
		OnCrash:    "destroy",
		Devices:    spec.devices(),
	}
	out, err := d.Marshal()
	if err != nil {
		return "", fmt.Errorf("domain %q: %w", spec.Name, err)
	}
	return out + "\n", nil
}

// ownerElement is written with its prefix, as libvirt asks for: an element of a namespace of its own at the top of metadata.
type ownerElement struct {
	XMLName      xml.Name `xml:"caplv:owner"`
	XMLNamespace string   `xml:"xmlns:caplv,attr"`
	Namespace    string   `xml:"namespace,attr"`
	Name         string   `xml:"name,attr"`
	UID          string   `xml:"uid,attr"`
	RootDisk     string   `xml:"rootDisk,attr,omitempty"`
}

// rootComplete is the owner element's attribute rootDisk where Spec.RootCloned is set.
const rootComplete = "complete"

func ownerXML(owner Owner, rootCloned bool) (string, error) {
	element := ownerElement{XMLNamespace: XMLNamespace, Namespace: owner.Namespace, Name: owner.Name, UID: owner.UID}
	if rootCloned {
		element.RootDisk = rootComplete
	}
	out, err := xml.Marshal(element)
	return string(out), err
}

func (s Spec) os() *libvirtxml.DomainOS {
	os := &libvirtxml.DomainOS{
		Type:   &libvirtxml.DomainOSType{Arch: "x86_64", Machine: s.machine(), Type: "hvm"},
		Kernel: s.Boot.Kernel, Initrd: s.Boot.Initramfs, Cmdline: s.Boot.Args,
	}
	switch {
	case s.Firmware == FirmwareBIOS:
	case s.LoaderPath == "":
		os.Firmware = "efi"
		// The firmware with secure boot enforced also wants SMM, and images that are signed. A secure='no' at a loader would
		// be refused beside the selection by libvirt.
		os.FirmwareInfo = &libvirtxml.DomainOSFirmwareInfo{
			Features: []libvirtxml.DomainOSFirmwareFeature{{Enabled: "no", Name: "secure-boot"}},
		}
	default:
		os.Loader = &libvirtxml.DomainLoader{Path: s.LoaderPath, Readonly: "yes", Type: "pflash"}
		if s.NVRAMTemplatePath != "" {
			os.NVRam = &libvirtxml.DomainNVRam{Template: s.NVRAMTemplatePath}
		}
	}
	return os
}

func (s Spec) machine() string {
	if s.Machine == "" {
		return DefaultMachine
	}
	return s.Machine
}

func (s Spec) features() *libvirtxml.DomainFeatureList {
	features := &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}, APIC: &libvirtxml.DomainFeatureAPIC{}}
	if s.VCPUs > maxXAPIC {
		// The IOMMU remaps the interrupts of an I/O APIC that is QEMU's, not of one that is the kernel's.
		features.IOAPIC = &libvirtxml.DomainFeatureIOAPIC{Driver: "qemu"}
	}
	return features
}

// cpu gives the guest what the host has; without KVM, all that QEMU can emulate, since images for current enterprise
// systems need more than QEMU's default model.
func (s Spec) cpu() *libvirtxml.DomainCPU {
	if s.VirtType == VirtTypeKVM {
		return &libvirtxml.DomainCPU{Mode: "host-passthrough"}
	}
	return &libvirtxml.DomainCPU{Mode: "maximum"}
}

func (s Spec) sysInfo() []libvirtxml.DomainSysInfo {
	if s.IgnitionPath == "" {
		return nil
	}
	return []libvirtxml.DomainSysInfo{{FWCfg: &libvirtxml.DomainSysInfoFWCfg{
		Entry: []libvirtxml.DomainSysInfoEntry{{Name: ignitionKey, File: s.IgnitionPath}},
	}}}
}
