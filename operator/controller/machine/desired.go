// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/naming"
	"github.com/caplv/caplv/operator/virsh"
)

const (
	ignitionFile = "ignition.json"
	diskFormat   = "qcow2"
	// minMemoryMB is the least that a machine is sized to.
	minMemoryMB = 128
)

// describe completes d with what a machine that is yet to be created should be. It returns a problem when the host cannot give it
// what it asks for.
func describe(d *Desired, lm *infrav1.LibvirtMachine, lh *infrav1.LibvirtHost) *Blocker {
	spec := lm.Spec
	endpoint, err := hosts.ParseURI(lh.Spec.URI)
	if err != nil {
		return &Blocker{infrav1.InvalidURIReason, "LibvirtHost " + lh.Name + ": " + err.Error()}
	}
	if endpoint.Mode == virsh.ModeSession && spec.Network.Type == infrav1.NetworkTypeNetwork {
		return &Blocker{infrav1.NetworkTypeUnsupportedReason,
			"network.type network needs libvirt's system daemon and the host's URI ends in /session; use network.type bridge"}
	}
	vcpus, memory, problem := size(spec.Domain, lh.Status.Capacity)
	if problem != nil {
		return problem
	}
	d.RootBytes = wholeSectors(spec.RootDisk.Size)
	d.BasePool, d.BaseImage = string(spec.RootDisk.BaseImagePool), string(spec.RootDisk.BaseImage)
	if d.BasePool == "" {
		d.BasePool = string(spec.RootDisk.StoragePool)
	}
	d.FullClone = spec.RootDisk.CloneStrategy == infrav1.CloneStrategyFullClone
	d.EphemeralSize = spec.RootDisk.EphemeralPoolSize
	if spec.Network.Type == infrav1.NetworkTypeNetwork {
		d.Network = string(spec.Network.Name)
	}
	d.Domain = domain.Spec{
		Name: d.Name, UUID: d.UUID, Owner: d.Owner,
		VirtType: string(lh.Spec.VirtType), Machine: spec.Domain.Machine,
		VCPUs: vcpus, MemoryMiB: memory,
		Firmware: string(spec.Domain.Firmware), LoaderPath: lh.Spec.FirmwarePath, NVRAMTemplatePath: lh.Spec.NVRAMTemplatePath,
		RootDisk: domain.Disk{Pool: d.RootPool, Volume: d.RootVolume, Bus: string(spec.RootDisk.Bus), Format: diskFormat},
		Network:  domain.NIC{Type: string(spec.Network.Type), Name: string(spec.Network.Name), Model: spec.Network.Model, MAC: macOf(lm)},
	}
	for i, disk := range d.DataDisks {
		declared := spec.AdditionalDisks[i]
		d.Domain.Disks = append(d.Domain.Disks, domain.Disk{
			Pool: disk.Pool, Volume: disk.Volume, Bus: string(declared.Bus), Format: diskFormat, Serial: declared.Name,
		})
	}
	switch spec.BootstrapFormat {
	case infrav1.BootstrapFormatCloudInit:
		d.BootstrapFile = naming.SeedFile
		d.Domain.SeedPath = hostctl.Directory(d.Name) + "/" + d.BootstrapFile
	default:
		d.BootstrapFile = ignitionFile
		d.Domain.IgnitionPath = hostctl.Directory(d.Name) + "/" + d.BootstrapFile
	}
	d.Domain.SerialLogPath = hostctl.SerialLog(d.Name)
	if endpoint.Mode == virsh.ModeSession {
		d.Domain.SerialLogPath = hostctl.SessionSerialLog(d.Name)
	}
	return nil
}

// macOf is the interface's MAC address: the wanted one, or one derived from the machine's UID.
func macOf(lm *infrav1.LibvirtMachine) string {
	if lm.Spec.Network.MACAddress != "" {
		return lm.Spec.Network.MACAddress
	}
	return domain.MAC(string(lm.UID))
}

// providerID identifies one incarnation of a machine: a machine of the same name that is created later has another one.
func providerID(lm *infrav1.LibvirtMachine) string {
	if lm.Spec.ProviderID != "" {
		return lm.Spec.ProviderID
	}
	return fmt.Sprintf("libvirt://%s/%s", lm.Spec.HostRef.Name, domain.UUID(string(lm.UID)))
}

// size gives a machine what it asks for, or all that the host has available, and checks that the host has it.
func size(spec infrav1.DomainSpec, capacity *infrav1.HostCapacity) (vcpus, memoryMiB uint, problem *Blocker) {
	cpus, memory := ptr.Deref(spec.VCPUs, capacity.AvailableVCPUs), ptr.Deref(spec.MemoryMB, capacity.AvailableMemoryMB)
	switch {
	case cpus < 1 || cpus > capacity.AvailableVCPUs:
		return 0, 0, &Blocker{infrav1.InsufficientCapacityReason, fmt.Sprintf(
			"the machine needs %d vCPUs and the host has %d of %d available; lower domain.vcpus or the host's reservedResources.vcpus",
			max(cpus, 1), capacity.AvailableVCPUs, capacity.TotalVCPUs)}
	case memory < minMemoryMB || memory > capacity.AvailableMemoryMB:
		return 0, 0, &Blocker{infrav1.InsufficientCapacityReason, fmt.Sprintf(
			"the machine needs %d MiB and the host has %d of %d MiB available; lower domain.memoryMB or the host's reservedResources.memoryMB",
			max(memory, minMemoryMB), capacity.AvailableMemoryMB, capacity.TotalMemoryMB)}
	}
	return uint(cpus), uint(memory), nil
}

// wholeSectors is a disk's size in bytes, rounded up to the sectors that a disk consists of.
func wholeSectors(size resource.Quantity) uint64 {
	const sector = 512
	// The API server lets no negative size through.
	return (uint64(max(size.Value(), 1)) + sector - 1) / sector * sector
}

// identity is the part of Desired that a deletion needs: names and proofs of ownership.
func identity(lm *infrav1.LibvirtMachine, name string) Desired {
	root := lm.Spec.RootDisk
	d := Desired{
		Name: name,
		UUID: domain.UUID(string(lm.UID)), PoolUUID: domain.PoolUUID(string(lm.UID)),
		Owner:      domain.Owner{Namespace: lm.Namespace, Name: lm.Name, UID: string(lm.UID)},
		RootPool:   string(root.StoragePool),
		RootVolume: naming.RootVolume(name),
		Ephemeral:  root.EphemeralPool,
	}
	if d.Ephemeral {
		d.RootPool = name
	}
	for _, disk := range lm.Spec.AdditionalDisks {
		pool := string(disk.StoragePool)
		// With an ephemeral pool, storagePool of the root disk is the name of that pool in the spec.
		if d.Ephemeral && disk.StoragePool == root.StoragePool {
			pool = name
		}
		d.DataDisks = append(d.DataDisks, DataDisk{Pool: pool, Volume: naming.DataVolume(name, disk.Name), Bytes: wholeSectors(disk.Size)})
	}
	return d
}
