// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/virsh"
)

// PlanProvisioning returns what brings the machine from what was observed to running. The domain is defined first: it
// claims the name, and its metadata says whose everything is that is created after it.
func PlanProvisioning(d Desired, obs virsh.Observation, done Progress) (Plan, error) {
	owner, seen, err := owns(d, obs)
	if err != nil {
		return Plan{}, err
	}
	if owner == foreign {
		return blocked(infrav1.DomainAlreadyExistsReason,
			"domain %s with UUID %s exists on the host and is not this machine's (%s); rename or undefine it there, or give this machine another name",
			d.Name, seen.UUID, describeOwner(seen)), nil
	}
	if owner == ours && d.Provisioned && d.Restart != nil {
		return planRestart(d, seen, obs, done)
	}
	if owner == ours && obs.Domain.State.Running() {
		return Plan{}, nil
	}
	if d.Provisioned || owner == ours && obs.Domain.State.Active() {
		return planRecovery(d, owner, seen, obs, done)
	}
	if p, ok, err := planPrerequisites(d, owner, obs, done); err != nil || ok {
		return p, err
	}
	return planCreation(d, owner, seen, obs, done)
}

// planPrerequisites checks what the machine needs and does not create. It returns true when the returned plan is all
// that can be done.
func planPrerequisites(d Desired, owner ownership, obs virsh.Observation, done Progress) (Plan, bool, error) {
	pools := d.sharedPools()
	if !slices.Contains(pools, d.BasePool) {
		pools = append(pools, d.BasePool)
	}
	var steps []Step
	for _, name := range pools {
		pool, ok := obs.Pools[name]
		switch {
		case !ok:
			return blocked(infrav1.PoolNotFoundReason,
				"the host has no storage pool %q; create it there, or delete the machine and name another pool", name), true, nil
		case !pool.Active:
			steps = append(steps, Step{Kind: StepStartPool, Pool: name})
		case owner == absent && !done.Refreshed[name] && slices.Contains(d.sharedPools(), name):
			// A file that somebody has put there by hand is no volume of libvirt's before this; a disk that is created over
			// it would take it for the machine's.
			steps = append(steps, Step{Kind: StepRefreshPool, Pool: name})
		}
	}
	if len(steps) > 0 {
		return Plan{Steps: steps}, true, nil
	}
	if plan, stop, err := planBaseImage(d, obs, done); stop || err != nil {
		return plan, true, err
	}
	if d.Network != "" {
		active, defined := obs.Networks[d.Network]
		if !defined {
			return blocked(infrav1.NetworkNotFoundReason, "the host has no libvirt network %q; define it there", d.Network), true, nil
		}
		if !active {
			return blocked(infrav1.NetworkInactiveReason, "libvirt network %q of the host is not active; start it there (virsh net-start %s)", d.Network, d.Network), true, nil
		}
	}
	return Plan{}, false, nil
}

// planBaseImage checks the image that the root disk comes from.
func planBaseImage(d Desired, obs virsh.Observation, done Progress) (Plan, bool, error) {
	base := obs.Volumes[virsh.VolumeRef{Pool: d.BasePool, Name: d.BaseImage}]
	// It is also empty when the file of a volume that is still listed was removed without libvirt's doing.
	if base == "" {
		if !done.Refreshed[d.BasePool] {
			return Plan{Steps: []Step{{Kind: StepRefreshPool, Pool: d.BasePool}}}, true, nil
		}
		return blocked(infrav1.BaseImageNotFoundReason,
			"storage pool %q of the host has no volume %q; stage the base image there", d.BasePool, d.BaseImage), true, nil
	}
	image, err := domain.ParseVolume(base)
	if err != nil {
		return Plan{}, true, fmt.Errorf("base image %s in pool %s: %w", d.BaseImage, d.BasePool, err)
	}
	if image.CapacityBytes > d.RootBytes {
		return blocked(infrav1.RootDiskTooSmallReason,
			"rootDisk.size is %d bytes and the base image %s has a virtual size of %d bytes; ask for at least that much", d.RootBytes, d.BaseImage, image.CapacityBytes), true, nil
	}
	return Plan{}, false, nil
}

// planCreation returns the steps that are still missing.
func planCreation(d Desired, owner ownership, seen domain.Observed, obs virsh.Observation, done Progress) (Plan, error) {
	definition, err := planDefinition(d, owner, seen, obs)
	if err != nil || definition.Blocked != nil {
		return definition, err
	}
	steps := definition.Steps
	if !done.Staged {
		steps = append(steps, Step{Kind: StepStageDirectory, Stage: &hostctl.StageRequest{
			Name: d.Name, Ephemeral: d.Ephemeral, Size: d.EphemeralSize, File: d.BootstrapFile, Data: d.BootstrapData,
		}})
	}
	if d.Ephemeral {
		poolSteps, blocker, err := planEphemeralPool(d, obs)
		if err != nil || blocker.Blocked != nil {
			return blocker, err
		}
		steps = append(steps, poolSteps...)
	}
	diskSteps, err := planDataDisks(d, obs)
	if err != nil {
		return Plan{}, err
	}
	steps = append(steps, diskSteps...)
	plan := planOverlay
	if d.FullClone {
		plan = planClone
	}
	rootSteps, err := plan(d, seen, obs, done)
	if err != nil {
		return Plan{}, err
	}
	steps = append(steps, rootSteps...)
	if n := len(steps); n > 0 && steps[n-1].Kind == StepCloneVolume {
		return Plan{Steps: steps}, nil
	}
	return Plan{Steps: append(steps, Step{Kind: StepStartDomain})}, nil
}

// planDefinition returns the step that defines the domain, if it is needed, or the blocker when volumes of its name are there.
func planDefinition(d Desired, owner ownership, seen domain.Observed, obs virsh.Observation) (Plan, error) {
	definition := d.Domain
	if owner == ours {
		if seen.Boot == definition.Boot {
			return Plan{}, nil
		}
		// The cluster's kernel is another one than when the domain was defined, which has not run yet.
		definition.RootCloned = seen.RootCloned
	} else {
		for _, ref := range d.volumes() {
			if _, exists := obs.Volumes[ref]; exists && !d.ownPool(ref.Pool) {
				return blocked(infrav1.VolumeAlreadyExistsReason,
					"storage pool %q of the host holds a volume %q although the machine has no domain yet: it is not this machine's; delete or rename it there", ref.Pool, ref.Name), nil
			}
		}
	}
	xml, err := domain.XML(definition)
	return Plan{Steps: []Step{{Kind: StepDefineDomain, XML: xml}}}, err
}

// planEphemeralPool returns the steps that make the machine's own pool, or the blocker when its name is taken.
func planEphemeralPool(d Desired, obs virsh.Observation) ([]Step, Plan, error) {
	pool, ok := obs.Pools[d.RootPool]
	if !ok {
		xml, err := domain.PoolXML(d.RootPool, d.PoolUUID, hostctl.Directory(d.Name))
		if err != nil {
			return nil, Plan{}, err
		}
		return []Step{
			{Kind: StepDefinePool, Pool: d.RootPool, XML: xml},
			{Kind: StepStartPool, Pool: d.RootPool},
		}, Plan{}, nil
	}
	seen, err := domain.ParsePool(pool.XML)
	if err != nil {
		return nil, Plan{}, fmt.Errorf("storage pool %s: %w", d.RootPool, err)
	}
	if seen.UUID != d.PoolUUID {
		return nil, blocked(infrav1.PoolAlreadyExistsReason,
			"storage pool %q with UUID %s exists on the host and is not this machine's; rename or undefine it there", d.RootPool, seen.UUID), nil
	}
	if !pool.Active {
		return []Step{{Kind: StepStartPool, Pool: d.RootPool}}, Plan{}, nil
	}
	return nil, Plan{}, nil
}
