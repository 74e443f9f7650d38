// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"k8s.io/utils/ptr"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/virsh"
)

const (
	ignitionFile = "ignition.json"
	// minMemoryMB is the least that a machine is sized to.
	minMemoryMB = 128
)

// describe completes d with what a machine that is yet to be created should be. It returns a problem when the host cannot give it
// what it asks for.
func describe(d *Desired, lm *infrav1.LibvirtMachine, lh *infrav1.LibvirtHost) (*Blocker, error) {
	spec := lm.Spec
	endpoint, err := hosts.ParseURI(lh.Spec.URI)
	if err != nil {
		return &Blocker{infrav1.InvalidURIReason, "LibvirtHost " + lh.Name + ": " + err.Error()}, nil //nolint:nilerr // The blocker reports it.
	}
	if endpoint.Mode == virsh.ModeSession && spec.Network.Type == infrav1.NetworkTypeNetwork {
		return &Blocker{infrav1.NetworkTypeUnsupportedReason,
			"network.type network needs libvirt's system daemon and the host's URI ends in /session; use network.type bridge"}, nil
	}
	vcpus, memory, problem := size(spec.Domain, lh.Status.Capacity)
	if problem != nil {
		return problem, nil
	}
	d.RootBytes, err = bytesOf(lm)
	if err != nil {
		return nil, err
	}
	d.BasePool, d.BaseImage = string(spec.RootDisk.BaseImagePool), string(spec.RootDisk.BaseImage)
	if d.BasePool == "" {
		d.BasePool = string(spec.RootDisk.StoragePool)
	}
	d.EphemeralSize = spec.RootDisk.EphemeralPoolSize
	if spec.Network.Type == infrav1.NetworkTypeNetwork {
		d.Network = string(spec.Network.Name)
	}
	d.BootstrapFile = ignitionFile
	d.Domain = domain.Spec{
		Name: d.Name, UUID: d.UUID, Owner: d.Owner,
		VirtType: string(lh.Spec.VirtType), Machine: spec.Domain.Machine,
		VCPUs: vcpus, MemoryMiB: memory,
		Firmware: string(spec.Domain.Firmware), LoaderPath: lh.Spec.FirmwarePath, NVRAMTemplatePath: lh.Spec.NVRAMTemplatePath,
		RootDisk:     domain.Disk{Pool: d.RootPool, Volume: d.RootVolume, Bus: string(spec.RootDisk.Bus), Format: "qcow2"},
		Network:      domain.NIC{Type: string(spec.Network.Type), Name: string(spec.Network.Name), Model: spec.Network.Model, MAC: macOf(lm)},
		IgnitionPath: hostctl.Directory(d.Name) + "/" + ignitionFile,
	}
	if endpoint.Mode == virsh.ModeSystem {
		d.Domain.SerialLogPath = hostctl.SerialLog(d.Name)
	}
	return nil, nil
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

// bytesOf is the root disk's size, rounded up to the 512 bytes that a disk consists of.
func bytesOf(lm *infrav1.LibvirtMachine) (uint64, error) {
	const sector = 512
	value := lm.Spec.RootDisk.Size.Value()
	if value < 1 {
		return 0, fmt.Errorf("rootDisk.size is %s", lm.Spec.RootDisk.Size.String())
	}
	return (uint64(value) + sector - 1) / sector * sector, nil
}
