// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// HostFinalizer keeps a LibvirtHost until no machine needs it any more to be cleaned up.
	HostFinalizer = "infrastructure.cluster.x-k8s.io/libvirthost"

	// SSHPrivateKeySecretKey is the key of a host's Secret that holds the SSH private key. It is the key that
	// Secrets of type kubernetes.io/ssh-auth use.
	SSHPrivateKeySecretKey = "ssh-privatekey"

	// DefaultReservedVCPUs and DefaultReservedMemoryMB are what a host keeps for its own workload unless its
	// spec says otherwise.
	DefaultReservedVCPUs    int32 = 2
	DefaultReservedMemoryMB int32 = 4096

	// DefaultHealthCheckIntervalSeconds is how often a host is probed while machines use it.
	DefaultHealthCheckIntervalSeconds int32 = 300
)

// VirtType is the kind of virtualisation that a host's domains use, in libvirt's own words.
// +kubebuilder:validation:Enum=kvm;qemu
type VirtType string

const (
	// VirtTypeKVM is hardware virtualisation.
	VirtTypeKVM VirtType = "kvm"
	// VirtTypeQEMU is software emulation: slow, and meant for tests and demonstrations.
	VirtTypeQEMU VirtType = "qemu"
)

// LocalSecretReference names a Secret in the namespace of the object that refers to it.
type LocalSecretReference struct {
	// name is the name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ReservedResources is what a host keeps for its own workload. Machines that are sized from the host's
// capacity never get it.
type ReservedResources struct {
	// vcpus is the number of host CPUs that machines leave alone.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4096
	VCPUs *int32 `json:"vcpus,omitempty"`

	// memoryMB is the memory, in MiB, that machines leave alone.
	// +optional
	// +kubebuilder:default=4096
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=67108864
	MemoryMB *int32 `json:"memoryMB,omitempty"`
}

// LibvirtHostSpec says how a libvirt host is reached and how much of it may be borrowed.
type LibvirtHostSpec struct {
	// uri is the libvirt connection URI: qemu+ssh://USER@HOST[:PORT]/system or …/session.
	// The user is the service account on the host; its name is free.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^qemu[+]ssh://[A-Za-z_][A-Za-z0-9_.-]*@([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[[][0-9a-fA-F:.]+[]])(:[0-9]{1,5})?/(system|session)$')",message="uri must read qemu+ssh://USER@HOST[:PORT]/system or qemu+ssh://USER@HOST[:PORT]/session, without query parameters"
	URI string `json:"uri"`

	// secretRef names the Secret, in this object's namespace, whose key "ssh-privatekey" holds the unencrypted SSH
	// private key (ed25519, ECDSA or RSA) of the service account.
	// +required
	SecretRef LocalSecretReference `json:"secretRef"`

	// hostKeyFingerprint pins the host's SSH key, as "ssh-keygen -lf" prints it: SHA256:… Any of the host's keys may
	// be pinned. When it is absent, the first key that the host shows is recorded in status and pinned from then on.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^SHA256:[A-Za-z0-9+/]{43}$')",message="hostKeyFingerprint must be SHA256: followed by 43 base64 characters; get it with: ssh-keyscan HOST | ssh-keygen -lf -"
	// +kubebuilder:validation:MaxLength=64
	HostKeyFingerprint string `json:"hostKeyFingerprint,omitempty"`

	// firmwarePath is the absolute path of the UEFI code image on the host. When it is absent, libvirt selects a
	// firmware by itself.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="firmwarePath must be an absolute path on the host"
	FirmwarePath string `json:"firmwarePath,omitempty"`

	// nvramTemplatePath is the absolute path of the UEFI variable template on the host that goes with firmwarePath.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="nvramTemplatePath must be an absolute path on the host"
	NVRAMTemplatePath string `json:"nvramTemplatePath,omitempty"`

	// virtType is kvm, or qemu for software emulation on a host without hardware virtualisation.
	// +optional
	// +kubebuilder:default=kvm
	VirtType VirtType `json:"virtType,omitempty"`

	// reservedResources is what the host keeps for its own workload.
	// +optional
	// +kubebuilder:default={}
	ReservedResources ReservedResources `json:"reservedResources,omitzero"`

	// healthCheckIntervalSeconds is how often the host is probed while machines use it. A host without machines is
	// not probed.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=86400
	HealthCheckIntervalSeconds *int32 `json:"healthCheckIntervalSeconds,omitempty"`

	// bootstrap has the operator set the host up, with an account that may become root. Without it the host is set up already, for example by
	// playbooks/onboard_host.yml.
	// +optional
	Bootstrap *HostBootstrap `json:"bootstrap,omitempty"`
}

// MachineClaim names the one machine that may use a host.
type MachineClaim struct {
	// name is the name of the LibvirtMachine, in the namespace of the host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid is its UID: a machine of the same name that is created later has to claim the host for itself.
	// +required
	UID types.UID `json:"uid"`
}

// HostCapacity is what a host has, and what is left of it for machines.
type HostCapacity struct {
	// totalVCPUs is the number of CPUs that libvirt reports for the host.
	// +optional
	TotalVCPUs int32 `json:"totalVCPUs,omitempty"`

	// totalMemoryMB is the host's memory in MiB.
	// +optional
	TotalMemoryMB int32 `json:"totalMemoryMB,omitempty"`

	// availableVCPUs is totalVCPUs minus spec.reservedResources.vcpus, never below zero.
	// +optional
	AvailableVCPUs int32 `json:"availableVCPUs"`

	// availableMemoryMB is totalMemoryMB minus spec.reservedResources.memoryMB, in MiB, never below zero.
	// +optional
	AvailableMemoryMB int32 `json:"availableMemoryMB"`
}

// HostMode is the libvirt daemon that a host is set up for: the system's, or the service account's own.
// +kubebuilder:validation:Enum=system;session
type HostMode string

const (
	// HostModeSystem is the system daemon, for a URI that ends in /system.
	HostModeSystem HostMode = "system"
	// HostModeSession is the daemon of the service account, for a URI that ends in /session.
	HostModeSession HostMode = "session"
)

// HostSetup is what the Ansible roles have recorded on a host about how they set it up. It says what was wanted of them, not what
// works now; the condition Ready does that.
// +kubebuilder:validation:MinProperties=1
type HostSetup struct {
	// rolesVersion is the version of the collection caplv.caplv that set the host up last.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	RolesVersion string `json:"rolesVersion,omitempty"`

	// mode is what the host was set up for (caplv_mode). Where spec.uri names the other one, the condition Ready says so.
	// +optional
	Mode HostMode `json:"mode,omitempty"`

	// account is the service account that was made or adopted (caplv_user).
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Account string `json:"account,omitempty"`
}

// LibvirtHostStatus is what the last probe of a host found.
type LibvirtHostStatus struct {
	// conditions are Ready, HostKeyPinned, Bootstrapped, SessionHardened, Drifted and Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ready mirrors the condition Ready.
	// +optional
	Ready *bool `json:"ready,omitempty"`

	// capacity is what the host has and what machines may use of it.
	// +optional
	Capacity *HostCapacity `json:"capacity,omitempty"`

	// hostKeyFingerprint is the fingerprint of the SSH key that connections to this host are verified against.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	HostKeyFingerprint string `json:"hostKeyFingerprint,omitempty"`

	// libvirtVersion is the version of libvirt on the host.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	LibvirtVersion string `json:"libvirtVersion,omitempty"`

	// hypervisorVersion is the version of QEMU on the host.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	HypervisorVersion string `json:"hypervisorVersion,omitempty"`

	// systemUUID is the UUID of the host's board, where libvirt may read it. Two objects that reach the same host are told by it.
	// +optional
	// +kubebuilder:validation:MaxLength=36
	SystemUUID string `json:"systemUUID,omitempty"`

	// setup is how the Ansible roles have set the host up. It is absent for a host that was set up without them.
	// +optional
	Setup *HostSetup `json:"setup,omitempty"`

	// bootstrap is how far the operator is with setting the host up.
	// +optional
	Bootstrap *HostBootstrapStatus `json:"bootstrap,omitempty"`

	// baseImages are the base images of LibvirtClusters on this host.
	// +optional
	// +listType=map
	// +listMapKey=pool
	// +listMapKey=volumeName
	// +kubebuilder:validation:MaxItems=64
	BaseImages []HostBaseImage `json:"baseImages,omitempty"`

	// bootArtifacts are the kernels and initramfs of LibvirtClusters on this host.
	// +optional
	// +listType=map
	// +listMapKey=hostPath
	// +listMapKey=sha256
	// +kubebuilder:validation:MaxItems=64
	BootArtifacts []HostBootArtifact `json:"bootArtifacts,omitempty"`

	// machineRef is the machine that has claimed the host. It is claimed before the first step and released after the
	// last, so that one machine at a time uses a host.
	// +optional
	MachineRef *MachineClaim `json:"machineRef,omitempty"`

	// leftovers are what machines that were abandoned while the host could not be reached may have left on it.
	// +optional
	// +listType=map
	// +listMapKey=machineUID
	// +kubebuilder:validation:MaxItems=16
	Leftovers []HostLeftover `json:"leftovers,omitempty"`

	// machineCount is the number of LibvirtMachines that name this host.
	// +optional
	MachineCount int32 `json:"machineCount"`

	// lastChecked is when the host was last probed.
	// +optional
	LastChecked *metav1.Time `json:"lastChecked,omitempty"`

	// observedGeneration is the generation of the spec that the last probe used.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// LibvirtHost is a libvirt hypervisor whose idle capacity CAPLV may borrow.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=libvirthosts,scope=Namespaced,categories=cluster-api,shortName=lvh
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1alpha1","clusterctl.cluster.x-k8s.io/move-hierarchy="}
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Bootstrapped",type=string,JSONPath=`.status.conditions[?(@.type=="Bootstrapped")].reason`
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.bootstrap.run.progress`,priority=1
// +kubebuilder:printcolumn:name="vCPUs",type=integer,JSONPath=`.status.capacity.availableVCPUs`,description="vCPUs available to machines"
// +kubebuilder:printcolumn:name="Memory",type=integer,JSONPath=`.status.capacity.availableMemoryMB`,description="Memory available to machines, in MiB"
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.status.machineRef.name`
// +kubebuilder:printcolumn:name="Machines",type=integer,JSONPath=`.status.machineCount`,priority=1
// +kubebuilder:printcolumn:name="Checked",type=date,JSONPath=`.status.lastChecked`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="URI",type=string,JSONPath=`.spec.uri`,priority=1
// +kubebuilder:printcolumn:name="Libvirt",type=string,JSONPath=`.status.libvirtVersion`,priority=1
// +kubebuilder:printcolumn:name="Host Key",type=string,JSONPath=`.status.hostKeyFingerprint`,priority=1
type LibvirtHost struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says how the host is reached and how much of it may be borrowed.
	// +required
	Spec LibvirtHostSpec `json:"spec"`

	// status is what the last probe found.
	// +optional
	Status LibvirtHostStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions of the host.
func (h *LibvirtHost) GetConditions() []metav1.Condition { return h.Status.Conditions }

// SetConditions replaces the conditions of the host.
func (h *LibvirtHost) SetConditions(conditions []metav1.Condition) { h.Status.Conditions = conditions }

// LibvirtHostList is a list of LibvirtHosts.
//
// +kubebuilder:object:root=true
type LibvirtHostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []LibvirtHost `json:"items"`
}
