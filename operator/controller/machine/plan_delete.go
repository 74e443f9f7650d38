// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/virsh"
)

// PlanDeletion returns what removes everything of the machine from the host, and nothing else. The domain is
// undefined last: as long as it is there, it says whose the rest is.
func PlanDeletion(d Desired, obs virsh.Observation, done Progress) (Plan, error) {
	owner, _, err := owns(d, obs)
	if err != nil {
		return Plan{}, err
	}
	var steps []Step
	if owner == ours && obs.Domain.State.Active() {
		steps = append(steps, Step{Kind: StepDestroyDomain})
	}
	if d.Ephemeral {
		poolSteps, err := planPoolRemoval(d, obs)
		if err != nil {
			return Plan{}, err
		}
		steps = append(steps, poolSteps...)
	} else if owner != foreign {
		volumeSteps, again := planVolumeRemoval(d, obs, done)
		steps = append(steps, volumeSteps...)
		if again {
			return Plan{Steps: steps}, nil
		}
	}
	if !done.DirectoryRemoved && owner != foreign {
		steps = append(steps, Step{Kind: StepRemoveDirectory})
	}
	if owner == ours {
		steps = append(steps, Step{Kind: StepUndefineDomain})
	}
	return Plan{Steps: steps}, nil
}

// planPoolRemoval removes the machine's ephemeral pool; its files go with the directory.
func planPoolRemoval(d Desired, obs virsh.Observation) ([]Step, error) {
	pool, ok := obs.Pools[d.RootPool]
	if !ok {
		return nil, nil
	}
	seen, err := domain.ParsePool(pool.XML)
	if err != nil {
		return nil, fmt.Errorf("storage pool %s: %w", d.RootPool, err)
	}
	if seen.UUID != d.PoolUUID {
		return nil, nil
	}
	if pool.Active {
		return []Step{{Kind: StepDestroyPool, Pool: d.RootPool}, {Kind: StepUndefinePool, Pool: d.RootPool}}, nil
	}
	return []Step{{Kind: StepUndefinePool, Pool: d.RootPool}}, nil
}

// planVolumeRemoval removes the root disk from a pool that is not the machine's. An inactive pool does not tell what
// it holds: it is started first, and true is returned because only a new observation can say more.
func planVolumeRemoval(d Desired, obs virsh.Observation, done Progress) ([]Step, bool) {
	pool, ok := obs.Pools[d.RootPool]
	if !ok || done.Lost[d.RootPool] {
		return nil, false
	}
	if !pool.Active {
		return []Step{{Kind: StepStartPool, Pool: d.RootPool}}, true
	}
	if _, exists := obs.Volumes[virsh.VolumeRef{Pool: d.RootPool, Name: d.RootVolume}]; !exists {
		return nil, false
	}
	return []Step{{Kind: StepDeleteVolume, Pool: d.RootPool, Volume: d.RootVolume}}, false
}
