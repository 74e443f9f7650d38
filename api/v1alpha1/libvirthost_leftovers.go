// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MaxLeftovers is how many abandoned machines a host remembers.
const MaxLeftovers = 16

// HostLeftover is what a machine that was abandoned may have left on its host. It is removed when the host can be reached again, and until
// then no other machine uses the host.
type HostLeftover struct {
	// machine is the LibvirtMachine, which does not exist any more.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine"`

	// machineUID is the UID of the LibvirtMachine. Nothing is removed whose owner's UID is another.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	MachineUID string `json:"machineUID"`

	// domain is the name of the domain, and of the machine's directory.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Domain string `json:"domain"`

	// seen says that the domain was there at some time. Volumes of a domain that never was are somebody else's.
	// +optional
	Seen *bool `json:"seen,omitempty"`

	// ephemeralPool says that the machine has a storage pool of its own, called like the domain.
	// +optional
	EphemeralPool *bool `json:"ephemeralPool,omitempty"`

	// volumes are the machine's disks, the root disk first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Volumes []HostVolume `json:"volumes,omitempty"`

	// abandonedAt is when the machine was abandoned.
	// +required
	AbandonedAt metav1.Time `json:"abandonedAt"`

	// message says why the last attempt to remove it has failed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// HostVolume is a volume of a storage pool.
type HostVolume struct {
	// pool is the storage pool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Pool string `json:"pool"`

	// name is the name of the volume.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Name string `json:"name"`
}
