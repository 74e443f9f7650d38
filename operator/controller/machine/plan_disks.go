// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/virsh"
)

// planDataDisks creates the data disks that do not exist yet.
func planDataDisks(d Desired, obs virsh.Observation) ([]Step, error) {
	var steps []Step
	for _, disk := range d.DataDisks {
		if _, exists := obs.Volumes[virsh.VolumeRef{Pool: disk.Pool, Name: disk.Volume}]; exists {
			continue
		}
		xml, err := domain.VolumeXML(domain.VolumeSpec{Name: disk.Volume, CapacityBytes: disk.Bytes})
		if err != nil {
			return nil, err
		}
		steps = append(steps, Step{Kind: StepCreateVolume, Pool: disk.Pool, Volume: disk.Volume, XML: xml})
	}
	return steps, nil
}

// planOverlay creates a root disk that reads from the base image what the guest has not written.
func planOverlay(d Desired, _ domain.Observed, obs virsh.Observation, _ Progress) ([]Step, error) {
	if _, exists := obs.Volumes[virsh.VolumeRef{Pool: d.RootPool, Name: d.RootVolume}]; exists {
		return nil, nil
	}
	image, err := domain.ParseVolume(obs.Volumes[virsh.VolumeRef{Pool: d.BasePool, Name: d.BaseImage}])
	if err != nil {
		return nil, err
	}
	xml, err := domain.VolumeXML(domain.VolumeSpec{
		Name: d.RootVolume, CapacityBytes: d.RootBytes,
		Backing: &domain.Backing{Path: image.Path, Format: image.Format},
	})
	if err != nil {
		return nil, err
	}
	return []Step{{Kind: StepCreateVolume, Pool: d.RootPool, Volume: d.RootVolume, XML: xml}}, nil
}

// planClone copies the base image. A copy takes long and may be torn by a crash of the operator, of libvirt or of the host,
// and a torso looks like any other volume. So the domain's metadata says when the copy is complete; what is there without
// that mark, and was not just completed, is deleted and copied anew.
func planClone(d Desired, seen domain.Observed, obs virsh.Observation, done Progress) ([]Step, error) {
	volume, exists := obs.Volumes[virsh.VolumeRef{Pool: d.RootPool, Name: d.RootVolume}]
	switch {
	case exists && seen.RootCloned:
		return nil, nil
	case exists && done.Clone == CloneDone:
		return planCompletedClone(d, volume)
	}
	var steps []Step
	if exists {
		steps = append(steps, Step{Kind: StepDeleteVolume, Pool: d.RootPool, Volume: d.RootVolume})
	}
	if seen.RootCloned {
		// Somebody has deleted the volume before the machine ran for the first time. Its mark must not pass to the next copy.
		xml, err := domain.XML(d.Domain)
		if err != nil {
			return nil, err
		}
		steps = append(steps, Step{Kind: StepDefineDomain, XML: xml})
	}
	image, err := domain.ParseVolume(obs.Volumes[virsh.VolumeRef{Pool: d.BasePool, Name: d.BaseImage}])
	if err != nil {
		return nil, err
	}
	xml, err := domain.VolumeXML(domain.VolumeSpec{Name: d.RootVolume, CapacityBytes: image.CapacityBytes})
	if err != nil {
		return nil, err
	}
	return append(steps, Step{
		Kind: StepCloneVolume, Pool: d.RootPool, Volume: d.RootVolume, FromPool: d.BasePool, FromVolume: d.BaseImage, XML: xml,
	}), nil
}

// planCompletedClone grows the copy to the wanted size and marks it.
func planCompletedClone(d Desired, volume string) ([]Step, error) {
	seen, err := domain.ParseVolume(volume)
	if err != nil {
		return nil, fmt.Errorf("volume %s in pool %s: %w", d.RootVolume, d.RootPool, err)
	}
	var steps []Step
	if seen.CapacityBytes < d.RootBytes {
		steps = append(steps, Step{Kind: StepResizeVolume, Pool: d.RootPool, Volume: d.RootVolume, Bytes: d.RootBytes})
	}
	marked := d.Domain
	marked.RootCloned = true
	xml, err := domain.XML(marked)
	if err != nil {
		return nil, err
	}
	return append(steps, Step{Kind: StepMarkCloned, XML: xml}), nil
}
