// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// BecomePasswordSecretKey is the key of the Secret of spec.bootstrap that holds what sudo asks for.
	BecomePasswordSecretKey = "become-password"
	// SSHPublicKeySecretKey is the key of a Secret that the operator has made with the public half of the SSH key.
	SSHPublicKeySecretKey = "ssh-publickey" //nolint:gosec // The name of a key, and public.
	// AWXTokenSecretKey and AWXCASecretKey are the keys of the Secret of spec.bootstrap.awx: the bearer token, and certificate authorities (PEM)
	// that AWX is verified against.
	AWXTokenSecretKey = "token"
	AWXCASecretKey    = "ca.crt"

	// CheckNowAnnotation asks, with a value that it did not have before, for a check of a host that is set up, whatever spec.bootstrap.reapplyInterval is.
	CheckNowAnnotation = "infrastructure.cluster.x-k8s.io/check-now"
)

// BootstrapMode says how far the operator goes.
// +kubebuilder:validation:Enum=check;apply
type BootstrapMode string

const (
	// BootstrapCheck only tells what would be changed.
	BootstrapCheck BootstrapMode = "check"
	// BootstrapApply sets the host up.
	BootstrapApply BootstrapMode = "apply"
)

// PackagePolicy says what is done about missing packages.
// +kubebuilder:validation:Enum=install;check
type PackagePolicy string

const (
	// PackagesInstall installs them.
	PackagesInstall PackagePolicy = "install"
	// PackagesCheck only names them.
	PackagesCheck PackagePolicy = "check"
)

// DriftPolicy says what is done about a host that somebody has changed.
// +kubebuilder:validation:Enum=Report;Repair
type DriftPolicy string

const (
	// DriftReport tells, in the condition Drifted.
	DriftReport DriftPolicy = "Report"
	// DriftRepair puts it right.
	DriftRepair DriftPolicy = "Repair"
)

// BootstrapBackend is who runs the playbooks.
// +kubebuilder:validation:Enum=Sidecar;AWX
type BootstrapBackend string

const (
	// BackendSidecar is the container beside the operator.
	BackendSidecar BootstrapBackend = "Sidecar"
	// BackendAWX is AWX or Ansible Automation Platform.
	BackendAWX BootstrapBackend = "AWX"
)

// HostPool is a storage pool that the roles define.
type HostPool struct {
	// name is the pool's name in libvirt.
	// +required
	Name ResourceName `json:"name"`

	// path is its directory. The default depends on the mode; see the role storage_pool.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="path must be an absolute path on the host"
	Path string `json:"path,omitempty"`
}

// HostBootstrap says how the operator sets a host up, and keeps it so.
// +kubebuilder:validation:XValidation:rule="!has(self.backend) || self.backend != 'AWX' || has(self.awx)",message="backend AWX needs awx with url and secretRef"
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) || has(self.backend) && self.backend == 'AWX'",message="backend Sidecar needs secretRef, with the SSH private key of user"
type HostBootstrap struct {
	// user is whom Ansible logs in as: root, or an account that may become root with sudo. It is not the service account of spec.uri.
	// +optional
	// +kubebuilder:default=root
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z_][A-Za-z0-9_.-]*$')",message="user must be the name of an account: letters, digits, '_', '.' and '-', beginning with a letter or '_'"
	User string `json:"user,omitempty"`

	// port is the port of the SSH server for user; that of spec.uri by default.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// secretRef names the Secret, in this object's namespace, with the SSH private key of user under "ssh-privatekey" and, where sudo asks for
	// one, its password under "become-password". With backend AWX a credential of AWX takes its place.
	// +optional
	SecretRef LocalSecretReference `json:"secretRef,omitempty,omitzero"`

	// mode is apply, or check to be told only, in the condition Bootstrapped, what would be changed.
	// +optional
	// +kubebuilder:default=apply
	Mode BootstrapMode `json:"mode,omitempty"`

	// pools are storage pools to define. The default is one pool, default.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Pools []HostPool `json:"pools,omitempty"`

	// bridges are bridges of the host that machines in session mode may be attached to.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=15
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[A-Za-z0-9_][A-Za-z0-9_.-]*$')",message="a bridge is named with letters, digits, '_', '.' and '-', at most 15"
	Bridges []string `json:"bridges,omitempty"`

	// authorizedFrom are addresses, networks or patterns that the service account may log in from, as from="…" of sshd. Empty means from anywhere.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^!?[A-Za-z0-9.:*?/-]+$')",message="an entry is an address, a network, or a name with * and ?"
	AuthorizedFrom []string `json:"authorizedFrom,omitempty"`

	// authorizedKeys are further public keys that may log in as the service account, each as in a .pub file.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=16384
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9@.-]+ [A-Za-z0-9+/=]+( [^\\\\n\\\\r]*)?$')",message="a key reads TYPE BASE64 [COMMENT], on one line and without options"
	AuthorizedKeys []string `json:"authorizedKeys,omitempty"`

	// packagePolicy is install, or check on hosts whose packages are somebody else's.
	// +optional
	// +kubebuilder:default=install
	PackagePolicy PackagePolicy `json:"packagePolicy,omitempty"`

	// reapplyInterval is how often the host is checked for drift, at least 10m. Without it, or with 0s, a host that is set up is left alone.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('10m')",message="reapplyInterval must be 0s or at least 10m"
	ReapplyInterval *metav1.Duration `json:"reapplyInterval,omitempty"`

	// driftPolicy is what is done about drift.
	// +optional
	// +kubebuilder:default=Report
	DriftPolicy DriftPolicy `json:"driftPolicy,omitempty"`

	// timeout is how long one run may take, between 1m and 24h.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="timeout must be between 1m and 24h"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// offboardOnDelete has everything that the roles have added removed from the host before this object goes.
	// +optional
	OffboardOnDelete bool `json:"offboardOnDelete,omitempty"`

	// backend is who runs the playbooks.
	// +optional
	// +kubebuilder:default=Sidecar
	Backend BootstrapBackend `json:"backend,omitempty"`

	// awx says where AWX is, for backend AWX.
	// +optional
	AWX *AWXBackend `json:"awx,omitempty"`
}

// AWXBackend is an AWX or an automation controller, as playbooks/configure_awx.yml sets it up.
type AWXBackend struct {
	// url is where it is, without the path of its API.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() != ''",message="url must be an https URL"
	URL string `json:"url"`

	// apiPrefix is the path of its API: /api/v2 for AWX, /api/controller/v2 for Ansible Automation Platform 2.5 and newer.
	// +optional
	// +kubebuilder:default=/api/v2
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[A-Za-z0-9_-]+)+$')",message="apiPrefix must be a path such as /api/v2"
	APIPrefix string `json:"apiPrefix,omitempty"`

	// secretRef names the Secret, in this object's namespace, with an OAuth2 token under "token" and, for a private one, the certificate authority
	// under "ca.crt".
	// +required
	SecretRef LocalSecretReference `json:"secretRef"`

	// organization is the organization that the job templates belong to; needed where their names are not unique.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Organization string `json:"organization,omitempty"`

	// jobTemplatePrefix is what the names of the job templates begin with; the rest is the playbook's name, such as "CAPLV onboard_host".
	// +optional
	// +kubebuilder:default="CAPLV "
	// +kubebuilder:validation:MaxLength=128
	JobTemplatePrefix string `json:"jobTemplatePrefix,omitempty"`
}

// RunPhase is where a run is.
type RunPhase string

// Phases of a run beside those of package ansible.
const (
	// RunSubmitting is the phase of a run that was decided on, and that its backend may not have yet.
	RunSubmitting RunPhase = "Submitting"
	// RunRejected is the phase of a run that its backend has refused.
	RunRejected RunPhase = "Rejected"
)

// BootstrapRun is a run of a playbook on this host.
type BootstrapRun struct {
	// key identifies the run.
	// +required
	// +kubebuilder:validation:MaxLength=128
	Key string `json:"key"`

	// id is the backend's own name for it: the number of AWX's job.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id,omitempty"`

	// playbook is its name, without ending.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Playbook string `json:"playbook"`

	// mode is check for a run that changes nothing.
	// +required
	Mode BootstrapMode `json:"mode"`

	// backend is who carries it out.
	// +required
	Backend BootstrapBackend `json:"backend"`

	// desiredStateHash is what it was to bring about.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	DesiredStateHash string `json:"desiredStateHash,omitempty"`

	// inputHash is what else it depended on: how the host is reached, and the versions of Secrets. A run that failed is begun again at once when
	// that changes.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	InputHash string `json:"inputHash,omitempty"`

	// attempt counts runs for one desired state, from 1.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`

	// phase is Queued, Running, Succeeded, Failed, Unreachable, TimedOut, Canceled or Lost; Submitting before the backend
	// has it, and Rejected if it does not take it.
	// +required
	// +kubebuilder:validation:MaxLength=32
	Phase RunPhase `json:"phase"`

	// submittedAt is when the operator decided on it.
	// +required
	SubmittedAt metav1.Time `json:"submittedAt"`

	// finishedAt is when it ended.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`

	// progress is for people: tasks done and known, and the current task.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Progress string `json:"progress,omitempty"`

	// ok, changed, failed and skipped count tasks.
	// +optional
	OK int32 `json:"ok,omitempty"`
	// +optional
	Changed int32 `json:"changed,omitempty"`
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// +optional
	Skipped int32 `json:"skipped,omitempty"`

	// changedTasks are the first tasks that changed something or, in a check, would.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=256
	ChangedTasks []string `json:"changedTasks,omitempty"`

	// failedTask is the task that failed, and message what it said, without secrets.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	FailedTask string `json:"failedTask,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`
}

// HostBootstrapStatus is how far the operator is with setting a host up.
type HostBootstrapStatus struct {
	// appliedStateHash is the desired state that the last successful run has brought about, appliedAt when.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AppliedStateHash string `json:"appliedStateHash,omitempty"`
	// +optional
	AppliedAt *metav1.Time `json:"appliedAt,omitempty"`

	// touchedAt is when the first run was submitted that may have changed something on the host. Without it there is nothing to off-board.
	// +optional
	TouchedAt *metav1.Time `json:"touchedAt,omitempty"`

	// checkRequest is the value of the annotation infrastructure.cluster.x-k8s.io/check-now that was acted on last.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	CheckRequest string `json:"checkRequest,omitempty"`

	// checkedAt is when a run last compared the host with the desired state.
	// +optional
	CheckedAt *metav1.Time `json:"checkedAt,omitempty"`

	// rolesVersion and ansibleVersion are what the last run was carried out with.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	RolesVersion string `json:"rolesVersion,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AnsibleVersion string `json:"ansibleVersion,omitempty"`

	// run is the last run, or the current one. It is recorded before the backend is asked, so that nothing runs twice.
	// +optional
	Run *BootstrapRun `json:"run,omitempty"`
}

// HostBaseImage is a base image of a LibvirtCluster that the operator brings to this host.
type HostBaseImage struct {
	// pool and volumeName are where it is.
	// +required
	Pool ResourceName `json:"pool"`
	// +required
	VolumeName ResourceName `json:"volumeName"`

	// sha256 is the digest of the image that was brought there last.
	// +optional
	SHA256 SHA256 `json:"sha256,omitempty"`

	// stagedAt is when.
	// +optional
	StagedAt *metav1.Time `json:"stagedAt,omitempty"`

	// run is the last run, or the current one.
	// +optional
	Run *BootstrapRun `json:"run,omitempty"`
}
