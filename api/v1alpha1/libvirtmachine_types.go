// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// MachineFinalizer keeps a LibvirtMachine until nothing of it is left on its host.
	MachineFinalizer = "infrastructure.cluster.x-k8s.io/libvirtmachine"

	// ManagedLabelsAnnotation and ManagedAnnotationsAnnotation, on a Node, list the keys that CAPLV has applied to it.
	ManagedLabelsAnnotation      = "infrastructure.cluster.x-k8s.io/libvirt-managed-labels"
	ManagedAnnotationsAnnotation = "infrastructure.cluster.x-k8s.io/libvirt-managed-annotations"
)

// ResourceName names a libvirt storage pool, volume or network.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_][A-Za-z0-9_.+-]*$')",message="a pool, volume or network name may hold letters, digits and _ . + -, and must not begin with a sign"
type ResourceName string

// BootstrapFormat is the format of a machine's bootstrap data.
// +kubebuilder:validation:Enum=ignition;cloud-init
type BootstrapFormat string

// The bootstrap formats.
const (
	BootstrapFormatIgnition  BootstrapFormat = "ignition"
	BootstrapFormatCloudInit BootstrapFormat = "cloud-init"
)

// IgnitionDelivery is how an Ignition config travels to the guest.
// +kubebuilder:validation:Enum=compact;plain
type IgnitionDelivery string

const (
	// IgnitionDeliveryCompact wraps the config, compressed, in a small one, where its version (3.1 or later) allows that
	// and it saves anything. A guest reads its config through fw_cfg in a time that grows with the square of the size.
	IgnitionDeliveryCompact IgnitionDelivery = "compact"
	// IgnitionDeliveryPlain hands the config over as it is.
	IgnitionDeliveryPlain IgnitionDelivery = "plain"
)

// NetworkType is how a machine's interface is attached.
// +kubebuilder:validation:Enum=bridge;network
type NetworkType string

const (
	// NetworkTypeBridge attaches to a bridge device of the host.
	NetworkTypeBridge NetworkType = "bridge"
	// NetworkTypeNetwork attaches to a network that libvirt manages.
	NetworkTypeNetwork NetworkType = "network"
)

// CloneStrategy is how a root disk comes from its base image.
// +kubebuilder:validation:Enum=copy-on-write;full-clone
type CloneStrategy string

const (
	// CloneStrategyCopyOnWrite makes an overlay that reads unchanged blocks from the base image.
	CloneStrategyCopyOnWrite CloneStrategy = "copy-on-write"
	// CloneStrategyFullClone makes an independent copy.
	CloneStrategyFullClone CloneStrategy = "full-clone"
)

// Firmware is what a machine boots with.
// +kubebuilder:validation:Enum=uefi;bios
type Firmware string

// The kinds of firmware.
const (
	FirmwareUEFI Firmware = "uefi"
	FirmwareBIOS Firmware = "bios"
)

// DiskBus is the bus that a disk is attached to.
// +kubebuilder:validation:Enum=virtio;scsi;sata
type DiskBus string

// LibvirtHostReference names a LibvirtHost in the namespace of the machine.
type LibvirtHostReference struct {
	// name is the name of the LibvirtHost.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// DomainSpec is the shape of the virtual machine.
type DomainSpec struct {
	// vcpus is the number of virtual CPUs. When it is absent, the machine gets what the host has available.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	VCPUs *int32 `json:"vcpus,omitempty"`

	// memoryMB is the memory in MiB. When it is absent, the machine gets what the host has available.
	// +optional
	// +kubebuilder:validation:Minimum=128
	// +kubebuilder:validation:Maximum=67108864
	MemoryMB *int32 `json:"memoryMB,omitempty"`

	// machine is QEMU's machine type.
	// +optional
	// +kubebuilder:default=q35
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')",message="machine must be a QEMU machine type such as q35"
	Machine string `json:"machine,omitempty"`

	// firmware is uefi or bios.
	// +optional
	// +kubebuilder:default=uefi
	Firmware Firmware `json:"firmware,omitempty"`
}

// RootDiskSpec is the root disk and where it comes from.
//
// +kubebuilder:validation:XValidation:rule="(has(self.ephemeralPool) && self.ephemeralPool) || has(self.storagePool)",message="storagePool is required unless ephemeralPool is true"
// +kubebuilder:validation:XValidation:rule="!(has(self.ephemeralPool) && self.ephemeralPool) || has(self.baseImagePool)",message="baseImagePool is required when ephemeralPool is true: a pool that is created for the machine cannot hold the base image"
// +kubebuilder:validation:XValidation:rule="!has(self.ephemeralPoolSize) || (has(self.ephemeralPool) && self.ephemeralPool)",message="ephemeralPoolSize needs ephemeralPool: true"
type RootDiskSpec struct {
	// size is the virtual size of the root disk, for example 100Gi.
	// +required
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1048576 : quantity(self).compareTo(quantity('1Mi')) >= 0",message="size must be a quantity of at least 1Mi, such as 100Gi"
	Size resource.Quantity `json:"size"`

	// storagePool is the storage pool that receives the root disk. With ephemeralPool it is only a label: the machine
	// gets a pool of its own.
	// +optional
	StoragePool ResourceName `json:"storagePool,omitempty"`

	// baseImage is the volume that the root disk is cloned from.
	// +required
	BaseImage ResourceName `json:"baseImage"`

	// baseImagePool is the storage pool of the base image. Defaults to storagePool.
	// +optional
	BaseImagePool ResourceName `json:"baseImagePool,omitempty"`

	// ephemeralPool puts the root disk into a storage pool on tmpfs that is created for this machine and removed with
	// it, so that no disk of the host is written to.
	// +optional
	EphemeralPool bool `json:"ephemeralPool,omitempty"`

	// ephemeralPoolSize limits the memory of the ephemeral pool: a percentage of the host's memory such as 80%, or an
	// absolute size such as 16G. The kernel's default is 50%.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([1-9][0-9]?|100)%|[1-9][0-9]*[kKmMgG])$')",message="ephemeralPoolSize must be a percentage from 1% to 100%, or a size such as 512M or 16G"
	EphemeralPoolSize string `json:"ephemeralPoolSize,omitempty"`

	// bus is the disk's bus.
	// +optional
	// +kubebuilder:default=virtio
	Bus DiskBus `json:"bus,omitempty"`

	// cloneStrategy is copy-on-write or full-clone.
	// +optional
	// +kubebuilder:default=copy-on-write
	CloneStrategy CloneStrategy `json:"cloneStrategy,omitempty"`
}

// AdditionalDiskSpec is an empty data disk.
type AdditionalDiskSpec struct {
	// name is unique within the machine; the guest sees it as the disk's serial.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="a disk's name may hold lower-case letters, digits and -"
	Name string `json:"name"`

	// size is the disk's virtual size.
	// +required
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1048576 : quantity(self).compareTo(quantity('1Mi')) >= 0",message="size must be a quantity of at least 1Mi, such as 100Gi"
	Size resource.Quantity `json:"size"`

	// storagePool is the storage pool that receives the disk.
	// +required
	StoragePool ResourceName `json:"storagePool"`

	// bus is the disk's bus.
	// +optional
	// +kubebuilder:default=virtio
	Bus DiskBus `json:"bus,omitempty"`
}

// IPAddress is an IPv4 or IPv6 address.
// +kubebuilder:validation:MaxLength=45
// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IPv4 or IPv6 address such as 192.168.1.1"
type IPAddress string

// AddressCIDR is an IP address with the length of its prefix.
// +kubebuilder:validation:MaxLength=49
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="must be an address with prefix length such as 192.168.1.50/24"
type AddressCIDR string

// DNSDomain is a DNS domain name.
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?([.][A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$')",message="must be a DNS domain such as example.com"
type DNSDomain string

// DNSSpec is the machine's resolver.
type DNSSpec struct {
	// nameservers are the addresses of DNS servers.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	Nameservers []IPAddress `json:"nameservers,omitempty"`

	// searchDomains are appended to short names.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	SearchDomains []DNSDomain `json:"searchDomains,omitempty"`
}

// NetworkSpec is the machine's interface with its static addresses.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'bridge' || self.name.matches('^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$')",message="name of a bridge must be a device name of at most 15 letters, digits and _ . -"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || !isIP(self.gateway) || ip(self.gateway).isLinkLocalUnicast() || self.addresses.exists(a, isCIDR(a) && cidr(a).containsIP(self.gateway))",message="gateway must lie in the subnet of one of the addresses"
// +kubebuilder:validation:XValidation:rule="!has(self.ipv6Gateway) || !isIP(self.ipv6Gateway) || ip(self.ipv6Gateway).family() == 6",message="ipv6Gateway must be an IPv6 address"
type NetworkSpec struct {
	// type is bridge or network.
	// +required
	Type NetworkType `json:"type"`

	// name is the name of the bridge device or of the libvirt network.
	// +required
	Name ResourceName `json:"name"`

	// model is the model of the network card.
	// +optional
	// +kubebuilder:default=virtio
	// +kubebuilder:validation:Enum=virtio;e1000;e1000e
	Model string `json:"model,omitempty"`

	// addresses are the static addresses of the machine, with prefix length. There is no DHCP: a machine's identity
	// is known before it boots.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Addresses []AddressCIDR `json:"addresses"`

	// gateway is the default gateway, of either family.
	// +optional
	Gateway IPAddress `json:"gateway,omitempty"`

	// ipv6Gateway is the default gateway for IPv6 of a machine whose gateway is IPv4.
	// +optional
	IPv6Gateway IPAddress `json:"ipv6Gateway,omitempty"`

	// dns is the machine's resolver.
	// +optional
	DNS DNSSpec `json:"dns,omitempty,omitzero"`

	// macAddress is the interface's MAC address. When it is absent, a stable, locally administered one is derived from
	// the machine's UID.
	// +optional
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$')",message="macAddress must be a unicast MAC address such as 52:54:00:12:34:56"
	MACAddress string `json:"macAddress,omitempty"`
}

// LibvirtMachineSpec is one virtual machine on one host. Everything but providerID, nodeLabels, nodeAnnotations,
// recoveryPolicy and deletion is fixed at creation: delete and create the machine to change it.
//
// +kubebuilder:validation:XValidation:rule="self.hostRef == oldSelf.hostRef",message="hostRef cannot be changed: delete the machine and create it again"
// +kubebuilder:validation:XValidation:rule="self.domain == oldSelf.domain",message="domain cannot be changed: delete the machine and create it again"
// +kubebuilder:validation:XValidation:rule="self.rootDisk == oldSelf.rootDisk",message="rootDisk cannot be changed: delete the machine and create it again"
// +kubebuilder:validation:XValidation:rule="has(self.additionalDisks) == has(oldSelf.additionalDisks) && (!has(self.additionalDisks) || self.additionalDisks == oldSelf.additionalDisks)",message="additionalDisks cannot be changed: delete the machine and create it again"
// +kubebuilder:validation:XValidation:rule="self.network == oldSelf.network",message="network cannot be changed: delete the machine and create it again"
// +kubebuilder:validation:XValidation:rule="self.bootstrapFormat == oldSelf.bootstrapFormat",message="bootstrapFormat cannot be changed: delete the machine and create it again"
// +kubebuilder:validation:XValidation:rule="has(self.ignitionDelivery) == has(oldSelf.ignitionDelivery) && (!has(self.ignitionDelivery) || self.ignitionDelivery == oldSelf.ignitionDelivery)",message="ignitionDelivery cannot be changed: delete the machine and create it again"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.providerID) || (has(self.providerID) && self.providerID == oldSelf.providerID)",message="providerID cannot be changed once it is set"
type LibvirtMachineSpec struct {
	// providerID identifies the machine to Cluster API and equals the Node's spec.providerID. CAPLV sets it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// hostRef names the LibvirtHost, in this namespace, that runs the machine.
	// +required
	HostRef LibvirtHostReference `json:"hostRef"`

	// domain is the shape of the virtual machine. {} sizes it from the host's available capacity.
	// +optional
	// +kubebuilder:default={}
	Domain DomainSpec `json:"domain,omitzero"`

	// rootDisk is the root disk and where it comes from.
	// +required
	RootDisk RootDiskSpec `json:"rootDisk"`

	// additionalDisks are empty data disks.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	AdditionalDisks []AdditionalDiskSpec `json:"additionalDisks,omitempty"`

	// network is the machine's interface with its static addresses.
	// +required
	Network NetworkSpec `json:"network"`

	// bootstrapFormat is the format of the bootstrap data that the Machine refers to.
	// +optional
	// +kubebuilder:default=ignition
	BootstrapFormat BootstrapFormat `json:"bootstrapFormat,omitempty"`

	// ignitionDelivery is how an Ignition config travels to the guest: compact wraps it, compressed, in a small config
	// (from Ignition 3.1 on), plain hands it over as it is.
	// +optional
	// +kubebuilder:default=compact
	IgnitionDelivery IgnitionDelivery `json:"ignitionDelivery,omitempty"`

	// nodeLabels are applied to the machine's Node by the controller; the NodeRestriction admission plugin does not
	// limit them.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`

	// nodeAnnotations are applied to the machine's Node by the controller.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeAnnotations map[string]string `json:"nodeAnnotations,omitempty"`

	// recoveryPolicy is what happens when the domain has run and does not any more: None leaves it to whoever looks after
	// the host, Restart starts it again, with growing pauses and up to five times in a row.
	// +optional
	// +kubebuilder:default=None
	RecoveryPolicy RecoveryPolicy `json:"recoveryPolicy,omitempty"`

	// deletion is how the machine leaves: limits for the drain of its Node and for the shutdown of its guest.
	// +optional
	Deletion LibvirtMachineDeletionSpec `json:"deletion,omitempty,omitzero"`
}

// LibvirtMachineInitializationStatus follows the v1beta2 contract.
// +kubebuilder:validation:MinProperties=1
type LibvirtMachineInitializationStatus struct {
	// provisioned becomes true when the domain runs for the first time, and stays true.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// LibvirtMachineStatus is the observed state of a machine.
type LibvirtMachineStatus struct {
	// conditions are Ready, HostAvailable, BootstrapDataAvailable, DomainRunning, BaseImageStaged, NodeJoined,
	// NodeLabelled, Draining, CleanupStalled and Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization follows the v1beta2 contract of Cluster API.
	// +optional
	Initialization LibvirtMachineInitializationStatus `json:"initialization,omitempty,omitzero"`

	// ready mirrors the condition Ready.
	// +optional
	Ready *bool `json:"ready,omitempty"`

	// addresses are every InternalIP, the Hostname and the InternalDNS name (the Node's name) of the machine.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`

	// nodeName is the hostname of the machine and the name of its Node; it is also the domain's name on the host.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	NodeName string `json:"nodeName,omitempty"`

	// domainUUID is the UUID of the domain on the host. It is written before anything is created there, so that a
	// machine without it has left no trace on its host.
	// +optional
	// +kubebuilder:validation:MaxLength=36
	DomainUUID string `json:"domainUUID,omitempty"`

	// creationStartedAt is when domainUUID was written. Nothing that speaks for the machine, such as its kubelet's request
	// for a certificate or its Node, can be older.
	// +optional
	CreationStartedAt *metav1.Time `json:"creationStartedAt,omitempty"`

	// nodeClientCertificate is the one request for a client certificate of the machine's kubelet that was approved.
	// Whoever holds bootstrap credentials can make requests for every machine, so no second one is approved. Remove it from
	// the status if the certificate was lost before the Node joined, and the machine is not to be created again.
	// +optional
	NodeClientCertificate *NodeClientCertificate `json:"nodeClientCertificate,omitempty"`

	// domainState is the state of the domain in libvirt's words, such as "running" or "shut off".
	// +optional
	// +kubebuilder:validation:MaxLength=64
	DomainState string `json:"domainState,omitempty"`

	// recovery is what spec.recoveryPolicy has done.
	// +optional
	Recovery *RecoveryStatus `json:"recovery,omitempty"`

	// restartRequest is what became of the latest request by the annotation
	// infrastructure.cluster.x-k8s.io/libvirt-restart-request.
	// +optional
	RestartRequest *RestartRequestStatus `json:"restartRequest,omitempty"`

	// vcpus is the number of virtual CPUs that the machine got.
	// +optional
	VCPUs int32 `json:"vcpus,omitempty"`

	// memoryMB is the memory that the machine got, in MiB.
	// +optional
	MemoryMB int32 `json:"memoryMB,omitempty"`

	// deletion is how far the machine's deletion has come.
	// +optional
	Deletion *LibvirtMachineDeletionStatus `json:"deletion,omitempty"`

	// observedGeneration is the generation of the spec that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// LibvirtMachine is one KVM virtual machine on one LibvirtHost.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=libvirtmachines,scope=Namespaced,categories=cluster-api,shortName=lvm
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.spec.hostRef.name`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.addresses[?(@.type=="InternalIP")].address`,priority=1
// +kubebuilder:printcolumn:name="vCPUs",type=integer,JSONPath=`.status.vcpus`,priority=1
// +kubebuilder:printcolumn:name="Memory",type=integer,JSONPath=`.status.memoryMB`,description="Memory in MiB",priority=1
// +kubebuilder:printcolumn:name="Domain",type=string,JSONPath=`.status.domainState`,priority=1
// +kubebuilder:printcolumn:name="ProviderID",type=string,JSONPath=`.spec.providerID`,priority=1
type LibvirtMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the wanted virtual machine.
	// +required
	Spec LibvirtMachineSpec `json:"spec"`

	// status is its observed state.
	// +optional
	Status LibvirtMachineStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions of the machine.
func (m *LibvirtMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions of the machine.
func (m *LibvirtMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// LibvirtMachineList is a list of LibvirtMachines.
//
// +kubebuilder:object:root=true
type LibvirtMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []LibvirtMachine `json:"items"`
}
