// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"context"
	"io"
	"time"
)

// Mode says which libvirt daemon is used.
type Mode string

const (
	// ModeSystem is the privileged daemon, qemu:///system.
	ModeSystem Mode = "system"
	// ModeSession is the daemon of the SSH user, qemu:///session. XDG_RUNTIME_DIR is pinned for it, because with and
	// without it the same user has two daemons.
	ModeSession Mode = "session"
)

// Client is what a reconciler can ask of libvirt on a host. Its methods may be called concurrently; they are executed
// one after the other. Errors are of type *Error or come from the transport. Operations that find their effect there
// already succeed.
type Client interface {
	// Probe asks for versions and size of the host, and whether its hypervisor offers virtType ("kvm" or "qemu").
	Probe(ctx context.Context, virtType string) (Hypervisor, error)
	// Observe brings back everything that the query names, in one round trip.
	Observe(ctx context.Context, query Query) (Observation, error)

	// DefineDomain defines a persistent domain.
	DefineDomain(ctx context.Context, xml string) error
	// StartDomain starts a defined domain.
	StartDomain(ctx context.Context, name string) error
	// ResumeDomain lets a paused domain go on. One that ran out of storage is paused again at once while there is no room.
	ResumeDomain(ctx context.Context, name string) error
	// ShutdownDomain presses the power button of a domain's ACPI and returns at once. The guest may take its time, or not listen.
	ShutdownDomain(ctx context.Context, name string) error
	// DestroyDomain ends a domain at once.
	DestroyDomain(ctx context.Context, name string) error
	// UndefineDomain removes a domain's definition with its NVRAM, its managed save, its TPM's state and what libvirt
	// remembers of its snapshots and checkpoints.
	UndefineDomain(ctx context.Context, name string) error

	// DefinePool defines a persistent storage pool.
	DefinePool(ctx context.Context, xml string) error
	// StartPool makes a pool active.
	StartPool(ctx context.Context, name string) error
	// RefreshPool makes an active pool look for volumes that appeared without libvirt's doing.
	RefreshPool(ctx context.Context, name string) error
	// DestroyPool makes a pool inactive; its files stay.
	DestroyPool(ctx context.Context, name string) error
	// UndefinePool removes the definition of an inactive pool.
	UndefinePool(ctx context.Context, name string) error

	// CreateVolume creates a volume in an active pool.
	CreateVolume(ctx context.Context, pool, xml string) error
	// CloneVolume creates a volume in an active pool with the content of another volume, also of another pool. It takes as long
	// as the copy does, and no other operation of this Client is executed meanwhile. The new volume has the original's
	// capacity: ResizeVolume grows it. When ctx ends, the copy goes on by itself on the host, and its volume is VolumeBusy until
	// it has ended; the volume is then complete. When the daemon ends, what was copied stays and looks like a volume; it can
	// be deleted, even while qemu-img still writes to it. The volume is listed from the beginning.
	// While the copy goes on, neither pool can be refreshed or destroyed: that is VolumeBusy too.
	CloneVolume(ctx context.Context, pool, xml string, fromPool, fromVolume string) error
	// ResizeVolume grows a volume of an active pool to this capacity, in bytes. It never shrinks one.
	ResizeVolume(ctx context.Context, pool, name string, bytes uint64) error
	// DeleteVolume deletes a volume of an active pool. libvirt does not refuse to delete one that a domain uses; one that is
	// being copied, or copied from, is VolumeBusy.
	DeleteVolume(ctx context.Context, pool, name string) error

	// Close ends the remote process. A later operation starts another one.
	Close() error
}

// Hypervisor is what a host is.
type Hypervisor struct {
	// LibvirtVersion and HypervisorVersion are versions such as "9.0.0".
	LibvirtVersion, HypervisorVersion string
	// CPUs is the number of CPUs of the host.
	CPUs uint
	// MemoryMiB is the memory of the host.
	MemoryMiB uint
	// SystemUUID is the UUID of the host's board, in lower case; empty where libvirt may not read it, as in session mode.
	SystemUUID string
}

// VolumeRef names a volume.
type VolumeRef struct{ Pool, Name string }

// Query says what to observe.
type Query struct {
	// Domain is the name of a domain.
	Domain string
	// Pools are names of storage pools; the pools of Volumes must be among them.
	Pools []string
	// Volumes are volumes of these pools.
	Volumes []VolumeRef
	// Networks are names of libvirt networks.
	Networks []string
}

// Observation is what a Query found. What does not exist is absent.
type Observation struct {
	Domain *DomainInfo
	Pools  map[string]PoolInfo
	// Volumes are definitions (vol-dumpxml). Volumes of inactive pools are absent. The definition is empty for a volume that
	// the pool lists and of which the host has no file: its copy has just begun, or the file was removed by hand.
	Volumes map[VolumeRef]string
	// Networks says whether a defined network is active.
	Networks map[string]bool
}

// DomainInfo is a domain.
type DomainInfo struct {
	// XML is the persistent definition.
	XML string
	// State and Reason are libvirt's words, such as "paused" and "I/O error".
	State  State
	Reason string
	// Transient says that the domain runs and is not defined any more: nothing is left of it when it stops.
	Transient bool
	// DiskErrors are libvirt's words for what is wrong with the guest's disks, such as "no space" for vda. They are only asked for
	// when the domain is paused because of one.
	DiskErrors map[string]string
}

// ReasonIOError is the reason of a domain that is paused because of a disk.
const ReasonIOError = "I/O error"

// NoSpaceOnDisk is what DiskErrors says of a disk whose storage is full.
const NoSpaceOnDisk = "no space"

// PoolInfo is a storage pool.
type PoolInfo struct {
	Active bool
	// XML is the definition.
	XML string
}

// State is a domain's state in the words of virsh.
type State string

// The states of a domain.
const (
	StateRunning     State = "running"
	StateIdle        State = "idle"
	StatePaused      State = "paused"
	StateInShutdown  State = "in shutdown"
	StateShutOff     State = "shut off"
	StateCrashed     State = "crashed"
	StatePMSuspended State = "pmsuspended"
)

// Active says whether there is a QEMU process for the domain.
func (s State) Active() bool { return s != StateShutOff }

// Running says whether the guest makes progress.
func (s State) Running() bool { return s == StateRunning || s == StateIdle }

// Process is a remote process; hostconn.Process is one.
type Process interface {
	Stdin() io.WriteCloser
	Stdout() io.Reader
	Stderr() io.Reader
	Wait() (int, error)
	Close() error
}

// Starter starts a remote process.
type Starter func(ctx context.Context, command string) (Process, error)

// Options are limits. The zero value has the defaults in brackets.
type Options struct {
	// IdleTimeout is how long the remote process is kept without work [10 s].
	IdleTimeout time.Duration
	// URI replaces the connection URI of the mode, for tests.
	URI string
}
