// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

// Conditions of a LibvirtHost and their reasons.
const (
	// HostReadyCondition is True while the last probe found a host that can run machines.
	HostReadyCondition = clusterv1.ReadyCondition

	// HostReadyReason surfaces when the host is reachable, libvirt answers and the wanted virtType is offered.
	HostReadyReason = "HostReady"
	// SecretNotFoundReason surfaces when the Secret with the SSH key, or its key, does not exist.
	SecretNotFoundReason = "SecretNotFound"
	// InvalidPrivateKeyReason surfaces when the Secret holds no usable private key, for example an encrypted one.
	InvalidPrivateKeyReason = "InvalidPrivateKey"
	// InvalidURIReason surfaces when spec.uri cannot be used.
	InvalidURIReason = "InvalidURI"
	// UnreachableReason surfaces when no SSH connection can be made: name resolution, refusal, no route.
	UnreachableReason = "Unreachable"
	// TimeoutReason surfaces when the host accepts a connection or a command but does not answer in time.
	TimeoutReason = "Timeout"
	// UnauthorizedReason surfaces when the host refuses the SSH key for the user of the URI.
	UnauthorizedReason = "Unauthorized"
	// HostKeyMismatchReason surfaces when the host shows another SSH key than the pinned one.
	HostKeyMismatchReason = "HostKeyMismatch"
	// HostKeyNotPinnedReason surfaces when spec.hostKeyFingerprint is absent and the operator insists on it.
	HostKeyNotPinnedReason = "HostKeyNotPinned"
	// VirshMissingReason surfaces when the host has no virsh command.
	VirshMissingReason = "VirshMissing"
	// LibvirtUnavailableReason surfaces when virsh cannot talk to the libvirt daemon.
	LibvirtUnavailableReason = "LibvirtUnavailable"
	// VirtTypeUnsupportedReason surfaces when the hypervisor does not offer spec.virtType, for example kvm without /dev/kvm.
	VirtTypeUnsupportedReason = "VirtTypeUnsupported"
	// HelperUnavailableReason surfaces when the root-owned helper is missing, of another version, or not permitted to the account.
	HelperUnavailableReason = "HelperUnavailable"
	// SessionModeMisconfiguredReason surfaces when a host whose URI ends in /session lacks a piece that session mode
	// needs; the message names it.
	SessionModeMisconfiguredReason = "SessionModeMisconfigured"
	// DuplicateHostReason surfaces when an older LibvirtHost, of any namespace, reaches the same host.
	DuplicateHostReason = "DuplicateHost"
	// HostDeletingReason surfaces while a deleted LibvirtHost waits for the machines that need it to be cleaned up.
	HostDeletingReason = "Deleting"
	// ProbeFailedReason surfaces when the probe failed for a reason that CAPLV has no name for; the message holds it.
	ProbeFailedReason = "ProbeFailed"

	// HostKeyPinnedCondition says which SSH host key connections are verified against.
	HostKeyPinnedCondition = "HostKeyPinned"
	// HostKeyFromSpecReason surfaces when spec.hostKeyFingerprint is verified.
	HostKeyFromSpecReason = "FromSpec"
	// HostKeyRecordedReason surfaces when the key seen at first contact was recorded and is verified since.
	HostKeyRecordedReason = "RecordedAtFirstContact"

	// BootstrappedCondition says whether the host is set up as spec.bootstrap wants it. It is absent without spec.bootstrap.
	BootstrappedCondition = "Bootstrapped"
	// BootstrappedReason surfaces when a run has set the host up.
	BootstrappedReason = "Bootstrapped"
	// BootstrapQueuedReason surfaces while a run waits for its turn.
	BootstrapQueuedReason = "BootstrapQueued"
	// BootstrapRunningReason surfaces while a run works on the host.
	BootstrapRunningReason = "BootstrapRunning"
	// BootstrapCheckedReason surfaces when spec.bootstrap.mode is check; the message says what would be changed.
	BootstrapCheckedReason = "BootstrapChecked"
	// BootstrapFailedReason surfaces when a task failed; the message names it.
	BootstrapFailedReason = "BootstrapFailed"
	// BootstrapUnreachableReason surfaces when Ansible could not reach the host, or lost it.
	BootstrapUnreachableReason = "BootstrapUnreachable"
	// BootstrapTimedOutReason surfaces when a run was ended after spec.bootstrap.timeout.
	BootstrapTimedOutReason = "BootstrapTimedOut"
	// BootstrapLostReason surfaces when a run ended and nobody knows how; it is begun again.
	BootstrapLostReason = "BootstrapLost"
	// BootstrapCanceledReason surfaces when a run was ended by somebody; it is begun again.
	BootstrapCanceledReason = "BootstrapCanceled"
	// RunnerUnavailableReason surfaces when neither the sidecar nor AWX can be asked.
	RunnerUnavailableReason = "RunnerUnavailable"
	// RunRejectedReason surfaces when the sidecar or AWX refuses the run; the message says what to change.
	RunRejectedReason = "RunRejected"
	// WaitingForBootstrapReason surfaces, in Ready, while the host is being set up.
	WaitingForBootstrapReason = "WaitingForBootstrap"
	// OffboardingReason surfaces, in Ready and Bootstrapped, while a deleted host is being off-boarded.
	OffboardingReason = "Offboarding"

	// SessionHardenedCondition says whether a host in session mode has what session mode needs, set up by the roles.
	SessionHardenedCondition = "SessionHardened"
	// SessionHardenedReason surfaces when it has.
	SessionHardenedReason = "SessionHardened"
	// SessionNotHardenedReason surfaces until then.
	SessionNotHardenedReason = "SessionNotHardened"

	// DriftedCondition says whether somebody has changed what the roles have set up. It is absent until a first check.
	DriftedCondition = "Drifted"
	// DriftedReason surfaces when a check found differences; the message names the tasks.
	DriftedReason = "Drifted"
	// InSyncReason surfaces when it found none.
	InSyncReason = "InSync"
	// DriftUnknownReason surfaces when the check could not be carried out.
	DriftUnknownReason = "DriftUnknown"
)
