// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// LibvirtClusterSpec says where the control plane is that the machines join, and what is staged for them.
type LibvirtClusterSpec struct {
	// controlPlaneEndpoint is the API server as the machines reach it. CAPLV checks that it can be reached, and creates
	// nothing. When it is absent, the endpoint of the owning Cluster is used.
	// +optional
	ControlPlaneEndpoint clusterv1.APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`

	// bootArtifacts makes the machines boot a kernel directly and read their Ignition config from a disk, which is
	// faster than QEMU's fw_cfg for configs of more than about 100 KiB.
	// +optional
	BootArtifacts *BootArtifacts `json:"bootArtifacts,omitempty"`

	// baseImage makes the controller stage the machines' root disk image on every host.
	// +optional
	BaseImage *BaseImage `json:"baseImage,omitempty"`
}

// LibvirtClusterInitializationStatus follows the v1beta2 contract.
// +kubebuilder:validation:MinProperties=1
type LibvirtClusterInitializationStatus struct {
	// provisioned becomes true when the control plane was reachable for the first time, and stays true.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// LibvirtClusterStatus is what the last check of the control plane found.
type LibvirtClusterStatus struct {
	// conditions are Ready and Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization follows the v1beta2 contract of Cluster API.
	// +optional
	Initialization LibvirtClusterInitializationStatus `json:"initialization,omitempty,omitzero"`

	// ready mirrors the condition Ready.
	// +optional
	Ready *bool `json:"ready,omitempty"`
}

// LibvirtCluster is the infrastructure side of a Cluster: an existing control plane that must be reachable.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=libvirtclusters,scope=Namespaced,categories=cluster-api,shortName=lvc
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.controlPlaneEndpoint.host`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LibvirtCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says where the control plane is and what is staged for the machines.
	// +optional
	Spec LibvirtClusterSpec `json:"spec,omitzero"`

	// status is what the last check found.
	// +optional
	Status LibvirtClusterStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions of the cluster.
func (c *LibvirtCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions of the cluster.
func (c *LibvirtCluster) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// LibvirtClusterList is a list of LibvirtClusters.
//
// +kubebuilder:object:root=true
type LibvirtClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []LibvirtCluster `json:"items"`
}

// Conditions of a LibvirtCluster and their reasons.
const (
	// ClusterReadyCondition is True while the control plane can be reached from the operator.
	ClusterReadyCondition = clusterv1.ReadyCondition

	// ControlPlaneReachableReason surfaces when a TCP connection to the endpoint succeeded.
	ControlPlaneReachableReason = "ControlPlaneReachable"
	// ControlPlaneUnreachableReason surfaces when it did not. New machines wait; running ones are left alone.
	ControlPlaneUnreachableReason = "ControlPlaneUnreachable"
	// WaitingForControlPlaneEndpointReason surfaces while neither the LibvirtCluster nor its Cluster names an endpoint.
	WaitingForControlPlaneEndpointReason = "WaitingForControlPlaneEndpoint"
)
