// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/virsh"
)

// PlanDeletion returns what removes everything of the machine from the host, and nothing else. The domain is
// undefined last: as long as it is there, it says whose the rest is. A guest that runs is shut down first, as far as done has it.
func PlanDeletion(d Desired, obs virsh.Observation, done Progress) (Plan, error) {
	owner, _, err := owns(d, obs)
	if err != nil {
		return Plan{}, err
	}
	mine := owner == ours || owner == absent && d.Defined
	var steps []Step
	// Only a guest that makes progress can shut itself down.
	if owner == ours && obs.Domain.State.Running() && done.Shutdown != ShutdownOver {
		if done.Shutdown == ShutdownUnderWay {
			return Plan{Waiting: true}, nil
		}
		return Plan{Steps: []Step{{Kind: StepShutdownDomain}}}, nil
	}
	if owner == ours && obs.Domain.State.Active() {
		steps = append(steps, Step{Kind: StepDestroyDomain})
	}
	if d.Ephemeral {
		poolSteps, err := planPoolRemoval(d, obs)
		if err != nil {
			return Plan{}, err
		}
		steps = append(steps, poolSteps...)
	}
	if mine {
		volumeSteps, again := planVolumeRemoval(d, obs, done)
		steps = append(steps, volumeSteps...)
		if again {
			return Plan{Steps: steps}, nil
		}
	}
	if !done.DirectoryRemoved && mine {
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

// planVolumeRemoval removes the machine's volumes from pools that are not its own. An inactive pool does not tell what
// it holds: it is started first, and true is returned because only a new observation can say more.
func planVolumeRemoval(d Desired, obs virsh.Observation, done Progress) ([]Step, bool) {
	var starts, steps []Step
	for _, name := range d.sharedPools() {
		if pool, ok := obs.Pools[name]; ok && !pool.Active && !done.Lost[name] {
			starts = append(starts, Step{Kind: StepStartPool, Pool: name})
		}
	}
	if len(starts) > 0 {
		return starts, true
	}
	for _, ref := range d.volumes() {
		if _, exists := obs.Volumes[ref]; exists && !d.ownPool(ref.Pool) {
			steps = append(steps, Step{Kind: StepDeleteVolume, Pool: ref.Pool, Volume: ref.Name})
		}
	}
	return steps, false
}
