// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"time"

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
	StepCloneVolume     StepKind = "CloneVolume"
	StepResizeVolume    StepKind = "ResizeVolume"
	StepMarkCloned      StepKind = "MarkCloned"
	StepStartDomain     StepKind = "StartDomain"
	StepResumeDomain    StepKind = "ResumeDomain"
	StepShutdownDomain  StepKind = "ShutdownDomain"
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
	// FromPool and FromVolume are what StepCloneVolume copies.
	FromPool, FromVolume string
	// Bytes is the size that StepResizeVolume gives a volume.
	Bytes uint64
	// XML is the definition that a define, create or clone step hands to libvirt.
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

// Plan is what an observation calls for. It has steps or is blocked; an empty plan means that the host is as it
// should be.
type Plan struct {
	// Steps are applied in order, up to the first failure, and followed by a new observation.
	Steps []Step
	// Blocked says why nothing can be done.
	Blocked *Blocker
	// Due is when a blocked plan is to be made anew, because something can be done then; zero for no such time.
	Due time.Time
	// Waiting says that nothing is to be done until the guest has shut down.
	Waiting bool
	// Ended says that the domain has ended, as a request for its restart asks, which is to be recorded before it is started.
	Ended bool
	// Refused says why a domain that runs is not restarted as asked.
	Refused string
}

// Done says that nothing is left to do.
func (p Plan) Done() bool { return p.Blocked == nil && !p.Waiting && !p.Ended && len(p.Steps) == 0 }

// creates says whether the plan leaves something on the host that was not there before.
func (p Plan) creates() bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Kind != StepRefreshPool && s.Kind != StepStartPool })
}

// DataDisk is an empty disk beside the root disk.
type DataDisk struct {
	Pool, Volume string
	// Bytes is its virtual size.
	Bytes uint64
}

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
	// BasePool and BaseImage are where the root disk's image is. FullClone copies it; otherwise the root disk is an overlay.
	BasePool, BaseImage string
	FullClone           bool
	// DataDisks are the machine's other disks.
	DataDisks []DataDisk

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

	// Provisioned says that the domain has run before. It is then never created again: its guest has been a Node with a state
	// of its own. Recovery says whether it is started again.
	Provisioned bool
	Recovery    Recovery
	// Restart is a request for the domain to be started again; nil for none.
	Restart *Restart
	// Defined says that the domain has been seen on the host. Everything else is created after it and removed before it: a
	// machine whose domain was never there owns no volume and no directory, whatever their names are.
	Defined bool
}

// volumes are all volumes that the machine has of its own. Those in its own pool end with it.
func (d Desired) volumes() []virsh.VolumeRef {
	refs := []virsh.VolumeRef{{Pool: d.RootPool, Name: d.RootVolume}}
	for _, disk := range d.DataDisks {
		refs = append(refs, virsh.VolumeRef{Pool: disk.Pool, Name: disk.Volume})
	}
	return refs
}

// ownPool says whether a pool exists for the machine alone.
func (d Desired) ownPool(name string) bool { return d.Ephemeral && name == d.Name }

// sharedPools are the pools of the host that hold volumes of the machine.
func (d Desired) sharedPools() []string {
	var pools []string
	for _, ref := range d.volumes() {
		if !d.ownPool(ref.Pool) && !slices.Contains(pools, ref.Pool) {
			pools = append(pools, ref.Pool)
		}
	}
	return pools
}

// query is what must be observed to plan for the machine.
func (d Desired) query() virsh.Query {
	q := virsh.Query{Domain: d.Name, Volumes: d.volumes()}
	if d.BasePool != "" {
		q.Volumes = append(q.Volumes, virsh.VolumeRef{Pool: d.BasePool, Name: d.BaseImage})
	}
	for _, ref := range q.Volumes {
		if !slices.Contains(q.Pools, ref.Pool) {
			q.Pools = append(q.Pools, ref.Pool)
		}
	}
	if d.Network != "" {
		q.Networks = []string{d.Network}
	}
	return q
}

// CloneState is what the operator knows of the copy of a root disk. What it does not know is on the host, in the domain's
// metadata: a copy that is not marked complete there, and that nobody is at work on, is a torso.
type CloneState string

// The states of a copy.
const (
	CloneUnknown CloneState = ""
	CloneDone    CloneState = "done"
)

// ShutdownState is how far the shutdown of a guest is whose machine is being deleted.
type ShutdownState string

// The states of a shutdown.
const (
	// ShutdownOver lets the domain be destroyed: the guest gets no grace, or has had it.
	ShutdownOver ShutdownState = ""
	// ShutdownDue has the guest yet to be asked.
	ShutdownDue ShutdownState = "due"
	// ShutdownUnderWay has it asked, and its grace is not over.
	ShutdownUnderWay ShutdownState = "under way"
)

// Progress is what a reconcile has already done that no observation shows.
type Progress struct {
	// Refreshed holds the pools that were refreshed.
	Refreshed map[string]bool
	// Staged says that the helper has staged the directory and the bootstrap file.
	Staged bool
	// Lost holds the pools that cannot be started because their directory is gone, and their volumes with it.
	Lost map[string]bool
	// Clone is what is known of the copy of the root disk.
	Clone CloneState
	// DirectoryRemoved says that the helper has confirmed that the directory is gone.
	DirectoryRemoved bool
	// Shutdown is how far the guest's shutdown is.
	Shutdown ShutdownState
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
