// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RecoveryPolicy says what happens to a domain that has run and does not any more.
// +kubebuilder:validation:Enum=None;Restart
type RecoveryPolicy string

const (
	// RecoveryPolicyNone leaves the domain as it is. The host is borrowed: whoever ends the domain there has a reason.
	RecoveryPolicyNone RecoveryPolicy = "None"
	// RecoveryPolicyRestart starts a domain that has ended, and resumes one that ran out of storage, once there is room again. A
	// domain that was suspended or undefined on the host is left alone.
	RecoveryPolicyRestart RecoveryPolicy = "Restart"
)

// RecoveryStatus is what the recovery policy has done.
type RecoveryStatus struct {
	// restarts is how often the domain was started again or resumed in the machine's life.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Restarts int32 `json:"restarts,omitempty"`

	// attempts is how often that was tried since the domain last ran for ten minutes. At five the operator gives up. Setting
	// spec.recoveryPolicy to None sets it to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts,omitempty"`

	// lastAttemptTime is when that was last tried.
	// +optional
	LastAttemptTime *metav1.Time `json:"lastAttemptTime,omitempty"`

	// nextAttemptTime is when it is tried next; absent while the domain runs, and when nothing will be tried.
	// +optional
	NextAttemptTime *metav1.Time `json:"nextAttemptTime,omitempty"`

	// lastFailure is what the host said to the last attempt; empty when that succeeded.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	LastFailure string `json:"lastFailure,omitempty"`
}

// Reasons of DomainRunning and Ready for a domain that was provisioned. DomainNotRunning, DomainMissing and NoSpace are among
// those of the machine's creation.
const (
	// DomainPausedReason surfaces while the domain is suspended; the message says by what, and how to resume it.
	DomainPausedReason = "DomainPaused"
	// DomainIOErrorReason surfaces while the domain is paused because a disk of the host failed; the message names the guest's disk.
	DomainIOErrorReason = "DomainIOError"
	// DomainCrashedReason surfaces when the guest or its QEMU process has ended by a failure.
	DomainCrashedReason = "DomainCrashed"
	// RestartLimitReachedReason surfaces when the recovery policy has given up; the message says what is left to do.
	RestartLimitReachedReason = "RestartLimitReached"
)
