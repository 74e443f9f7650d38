// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/virsh"
)

// StepKind names what a step does on the host.
type StepKind string

// The steps, in the words of libvirt. Each is idempotent in the sense that it is only planned while the observation
// says that it is still needed.
const (
	StepRefreshPool     StepKind = "RefreshPool"
	StepStartPool       StepKind = "StartPool"
	StepDefineDomain    StepKind = "DefineDomain"
	StepStageDirectory  StepKind = "StageDirectory"
	StepDefinePool      StepKind = "DefinePool"
	StepCreateVolume    StepKind = "CreateVolume"
	StepStartDomain     StepKind = "StartDomain"
	StepDestroyDomain   StepKind = "DestroyDomain"
	StepDeleteVolume    StepKind = "DeleteVolume"
	StepDestroyPool     StepKind = "DestroyPool"
	StepUndefinePool    StepKind = "UndefinePool"
	StepRemoveDirectory StepKind = "RemoveDirectory"
	StepUndefineDomain  StepKind = "UndefineDomain"
)

// Step is one change on the host.
type Step struct {
	Kind StepKind
	// Pool is the storage pool of a pool or volume step.
	Pool string
	// Volume is the volume of a volume step.
	Volume string
	// XML is the definition that a define or create step hands to libvirt.
	XML string
	// Stage is what StepStageDirectory asks of the root-owned helper.
	Stage *hostctl.StageRequest
}

// Blocker is why a machine cannot go on: a condition's reason, and a message that names the way out.
type Blocker struct {
	Reason  string
	Message string
}

func blocked(reason, format string, args ...any) Plan {
	return Plan{Blocked: &Blocker{Reason: reason, Message: fmt.Sprintf(format, args...)}}
}

// Plan is what an observation calls for. At most one of its fields is set; an empty plan means that the host is as it
// should be.
type Plan struct {
	// Steps are applied in order, up to the first failure, and followed by a new observation.
	Steps []Step
	// Blocked says why nothing can be done.
	Blocked *Blocker
}

// Done says that nothing is left to do.
func (p Plan) Done() bool { return p.Blocked == nil && len(p.Steps) == 0 }

// Desired is what a machine should be on its host.
type Desired struct {
	// Name is the domain's name, from naming.Machine.
	Name string
	// UUID and PoolUUID are the UUIDs of the domain and of its ephemeral pool: the proof of ownership.
	UUID, PoolUUID string
	// Owner is written into the domain's metadata.
	Owner domain.Owner

	// RootPool and RootVolume are where the root disk is; RootBytes is its virtual size.
	RootPool, RootVolume string
	RootBytes            uint64
	// BasePool and BaseImage are where the root disk's backing image is.
	BasePool, BaseImage string

	// Ephemeral puts the root disk on a tmpfs of EphemeralSize (in mount's notation; empty for the kernel's default).
	Ephemeral     bool
	EphemeralSize string

	// Network is the libvirt network that must be active; empty for a bridge.
	Network string

	// BootstrapFile and BootstrapData are staged for the guest.
	BootstrapFile string
	BootstrapData []byte

	// Domain is the domain's definition.
	Domain domain.Spec

	// Provisioned says that the domain has run before. It is then never started or created again: its guest has been
	// a Node with a state of its own.
	Provisioned bool
}

// query is what must be observed to plan for the machine.
func (d Desired) query() virsh.Query {
	q := virsh.Query{
		Domain:  d.Name,
		Pools:   []string{d.RootPool},
		Volumes: []virsh.VolumeRef{{Pool: d.RootPool, Name: d.RootVolume}},
	}
	if d.BasePool != "" {
		if d.BasePool != d.RootPool {
			q.Pools = append(q.Pools, d.BasePool)
		}
		q.Volumes = append(q.Volumes, virsh.VolumeRef{Pool: d.BasePool, Name: d.BaseImage})
	}
	if d.Network != "" {
		q.Networks = []string{d.Network}
	}
	return q
}

// Progress is what a reconcile has already done that no observation shows.
type Progress struct {
	// Refreshed holds the pools that were refreshed.
	Refreshed map[string]bool
	// Staged says that the helper has staged the directory and the bootstrap file.
	Staged bool
	// Lost holds the pools that cannot be started because their directory is gone, and their volumes with it.
	Lost map[string]bool
	// DirectoryRemoved says that the helper has confirmed that the directory is gone.
	DirectoryRemoved bool
}

// ownership says whose the observed domain is.
type ownership int

const (
	absent ownership = iota
	ours
	foreign
)

func owns(d Desired, obs virsh.Observation) (ownership, domain.Observed, error) {
	if obs.Domain == nil {
		return absent, domain.Observed{}, nil
	}
	seen, err := domain.Parse(obs.Domain.XML)
	if err != nil {
		return foreign, domain.Observed{}, fmt.Errorf("domain %s: %w", d.Name, err)
	}
	if seen.UUID == d.UUID && seen.Owner != nil && *seen.Owner == d.Owner {
		return ours, seen, nil
	}
	return foreign, seen, nil
}

// describeOwner says for a message whose a foreign domain is.
func describeOwner(seen domain.Observed) string {
	if seen.Owner == nil {
		return "not created by CAPLV"
	}
	return fmt.Sprintf("it belongs to LibvirtMachine %s/%s with UID %s", seen.Owner.Namespace, seen.Owner.Name, seen.Owner.UID)
}

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
	if owner == ours && obs.Domain.State.Running() {
		return Plan{}, nil
	}
	if owner == ours && obs.Domain.State.Active() {
		return blocked(infrav1.DomainNotRunningReason,
			"domain %s is %q (%s); resume it on the host, or delete the machine to get a new one", d.Name, obs.Domain.State, obs.Domain.Reason), nil
	}
	if d.Provisioned {
		return planLost(d, owner, obs), nil
	}
	if p, ok, err := planPrerequisites(d, obs, done); err != nil || ok {
		return p, err
	}
	return planCreation(d, owner, obs, done)
}

// planLost describes a machine that has run and does not any more.
func planLost(d Desired, owner ownership, obs virsh.Observation) Plan {
	if owner == absent {
		return blocked(infrav1.DomainMissingReason,
			"domain %s has run on this host and is not defined there any more; delete the machine to get a new one", d.Name)
	}
	return blocked(infrav1.DomainNotRunningReason,
		"domain %s has run and is now %q (%s); delete the machine to get a new one, or start the domain on the host", d.Name, obs.Domain.State, obs.Domain.Reason)
}

// planPrerequisites checks what the machine needs and does not create. It returns true when the returned plan is all
// that can be done.
func planPrerequisites(d Desired, obs virsh.Observation, done Progress) (Plan, bool, error) {
	pools := []string{d.BasePool}
	if !d.Ephemeral && d.RootPool != d.BasePool {
		pools = append(pools, d.RootPool)
	}
	for _, name := range pools {
		pool, ok := obs.Pools[name]
		if !ok {
			return blocked(infrav1.PoolNotFoundReason,
				"the host has no storage pool %q; create it there, or delete the machine and name another pool", name), true, nil
		}
		if !pool.Active {
			return Plan{Steps: []Step{{Kind: StepStartPool, Pool: name}}}, true, nil
		}
	}
	base, ok := obs.Volumes[virsh.VolumeRef{Pool: d.BasePool, Name: d.BaseImage}]
	if !ok {
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

// planCreation returns the steps that are still missing.
func planCreation(d Desired, owner ownership, obs virsh.Observation, done Progress) (Plan, error) {
	var steps []Step
	_, volumeExists := obs.Volumes[virsh.VolumeRef{Pool: d.RootPool, Name: d.RootVolume}]
	if owner == absent {
		if volumeExists && !d.Ephemeral {
			return blocked(infrav1.VolumeAlreadyExistsReason,
				"storage pool %q of the host holds a volume %q although the machine has no domain yet: it is not this machine's; delete or rename it there", d.RootPool, d.RootVolume), nil
		}
		xml, err := domain.XML(d.Domain)
		if err != nil {
			return Plan{}, err
		}
		steps = append(steps, Step{Kind: StepDefineDomain, XML: xml})
	}
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
	if !volumeExists {
		image, err := domain.ParseVolume(obs.Volumes[virsh.VolumeRef{Pool: d.BasePool, Name: d.BaseImage}])
		if err != nil {
			return Plan{}, err
		}
		xml, err := domain.VolumeXML(domain.VolumeSpec{
			Name: d.RootVolume, CapacityBytes: d.RootBytes,
			Backing: &domain.Backing{Path: image.Path, Format: image.Format},
		})
		if err != nil {
			return Plan{}, err
		}
		steps = append(steps, Step{Kind: StepCreateVolume, Pool: d.RootPool, Volume: d.RootVolume, XML: xml})
	}
	return Plan{Steps: append(steps, Step{Kind: StepStartDomain})}, nil
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
