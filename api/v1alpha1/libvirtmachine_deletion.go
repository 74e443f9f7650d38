// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SkipDrainAnnotation on a LibvirtMachine has its deletion evict nothing and wait for no volume. Its value does not matter. It may
// be set while a drain is under way.
const SkipDrainAnnotation = "infrastructure.cluster.x-k8s.io/skip-drain"

// AbandonAnnotation on a LibvirtMachine lets its deletion end although its host is gone for good, or refuses. Its value does not matter. What
// the machine may have left is recorded in status.leftovers of the LibvirtHost, and removed when the host comes back.
const AbandonAnnotation = "infrastructure.cluster.x-k8s.io/abandon"

// Limits of a machine's deletion that apply when neither the LibvirtMachine nor the Machine sets any.
const (
	// DefaultNodeDrainTimeoutSeconds is 10 min.
	DefaultNodeDrainTimeoutSeconds = 600
	// DefaultNodeVolumeDetachTimeoutSeconds is 2 min.
	DefaultNodeVolumeDetachTimeoutSeconds = 120
	// DefaultShutdownGracePeriodSeconds is 30 s.
	DefaultShutdownGracePeriodSeconds = 30
)

// DrainTimeoutPolicy is what follows when a Node could not be drained in time.
// +kubebuilder:validation:Enum=Force;Wait
type DrainTimeoutPolicy string

const (
	// DrainTimeoutForce goes on with the deletion. Pods that are left end with the machine.
	DrainTimeoutForce DrainTimeoutPolicy = "Force"
	// DrainTimeoutWait goes on with the drain until no Pod is left.
	DrainTimeoutWait DrainTimeoutPolicy = "Wait"
)

// LibvirtMachineDeletionSpec is how a machine leaves. It may be changed while the machine is being deleted.
// +kubebuilder:validation:MinProperties=1
type LibvirtMachineDeletionSpec struct {
	// nodeDrainTimeoutSeconds is how long the eviction of Pods may take before onDrainTimeout decides; 0 is without limit. When it
	// is absent, spec.deletion.nodeDrainTimeoutSeconds of the Machine applies, and 600 when that is absent too.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeDrainTimeoutSeconds *int32 `json:"nodeDrainTimeoutSeconds,omitempty"`

	// onDrainTimeout is Force to go on with the deletion when the drain has timed out, so that the host is given back; or Wait to
	// go on with the drain.
	// +optional
	// +kubebuilder:default=Force
	OnDrainTimeout DrainTimeoutPolicy `json:"onDrainTimeout,omitempty"`

	// nodeVolumeDetachTimeoutSeconds is how long the deletion waits, after the drain, until no volume is attached to the Node; 0 is
	// without limit. When it is absent, spec.deletion.nodeVolumeDetachTimeoutSeconds of the Machine applies, and 120 when that is
	// absent too.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeVolumeDetachTimeoutSeconds *int32 `json:"nodeVolumeDetachTimeoutSeconds,omitempty"`

	// shutdownGracePeriodSeconds is how long the guest has, after the ACPI power button was pressed, to shut down before its domain
	// is destroyed; 0 destroys it at once. When it is absent, 30 applies. A guest that never became a Node gets no grace.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	ShutdownGracePeriodSeconds *int32 `json:"shutdownGracePeriodSeconds,omitempty"`

	// abandonAfterSeconds is how long the removal from the host may have stalled before the machine is abandoned, as with the annotation
	// infrastructure.cluster.x-k8s.io/abandon. When it is absent, the object stays until the host is clean.
	// +optional
	// +kubebuilder:validation:Minimum=1
	AbandonAfterSeconds *int32 `json:"abandonAfterSeconds,omitempty"`
}

// LibvirtMachineDeletionStatus is how far a deletion has come.
// +kubebuilder:validation:MinProperties=1
type LibvirtMachineDeletionStatus struct {
	// nodeDrainStartedAt is when the drain of the Node began.
	// +optional
	NodeDrainStartedAt *metav1.Time `json:"nodeDrainStartedAt,omitempty"`

	// volumeDetachStartedAt is when the deletion began to wait for volumes.
	// +optional
	VolumeDetachStartedAt *metav1.Time `json:"volumeDetachStartedAt,omitempty"`

	// nodeLeftAt is when the Node was given up, drained or not. Nothing is evicted any more from then on.
	// +optional
	NodeLeftAt *metav1.Time `json:"nodeLeftAt,omitempty"`

	// shutdownRequestedAt is when the guest was asked to shut down.
	// +optional
	ShutdownRequestedAt *metav1.Time `json:"shutdownRequestedAt,omitempty"`
}

// The condition of a LibvirtMachine that speaks of its leaving the cluster, and its reasons.
const (
	// DrainingCondition is True while the deletion waits for Pods or volumes to leave the Node. It is there only on a machine that
	// is being deleted and had a Node, or was told not to drain it.
	DrainingCondition = "Draining"
	// DrainingNodeReason surfaces while Pods are being evicted; the message counts them, names the first, and says why they are there.
	DrainingNodeReason = "DrainingNode"
	// WaitingForVolumeDetachReason surfaces while volumes are attached to the drained Node; the message names the first.
	WaitingForVolumeDetachReason = "WaitingForVolumeDetach"
	// DrainTimedOutReason surfaces when the drain has taken longer than it may. The condition is True while it goes on nevertheless.
	DrainTimedOutReason = "DrainTimedOut"
	// VolumeDetachTimedOutReason surfaces when the wait for volumes has ended without their being detached.
	VolumeDetachTimedOutReason = "VolumeDetachTimedOut"
	// NodeDrainedReason surfaces when no Pod that can be evicted is left.
	NodeDrainedReason = "NodeDrained"
	// DrainSkippedReason surfaces when the Node was not drained; the message says why.
	DrainSkippedReason = "DrainSkipped"

	// NodeAlreadyExistsReason surfaces on DomainRunning when the cluster has a Node of the machine's name that is not known to be
	// that of an earlier machine. The machine is started when that Node is gone.
	NodeAlreadyExistsReason = "NodeAlreadyExists"
)
