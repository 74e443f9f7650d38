// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// LibvirtExternalControlPlaneSpec says how Cluster API reaches the cluster that it runs on, and for how long it may.
type LibvirtExternalControlPlaneSpec struct {
	// server is the URL of the API server in the kubeconfig that Cluster API is given, for instance
	// "https://api.example.com:6443". Its certificate must be signed by an authority that the operator itself trusts for
	// the API server, so that the token can be sent to no other server. When it is absent, it is the URL by which the
	// operator reaches the API server.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() != '' && !self.contains('@')",message="must be a URL like https://api.example.com:6443"
	// +kubebuilder:validation:XValidation:rule="!isURL(self) || (url(self).getEscapedPath() in ['', '/'] && url(self).getQuery().size() == 0)",message="must have neither path nor query"
	Server string `json:"server,omitempty"`

	// tokenLifetimeSeconds is how long a token of that kubeconfig is valid, in seconds: 600 (10 minutes, the least that
	// Kubernetes issues) to 2592000 (30 days). It is replaced when four fifths of that time have passed. Cluster API connects
	// anew when the old one expires. The API server may issue tokens for a shorter time. Default: 43200 (12 hours).
	// +optional
	// +kubebuilder:default=43200
	// +kubebuilder:validation:Minimum=600
	// +kubebuilder:validation:Maximum=2592000
	TokenLifetimeSeconds int64 `json:"tokenLifetimeSeconds,omitempty"`
}

// LibvirtExternalControlPlaneInitializationStatus follows the v1beta2 contract.
// +kubebuilder:validation:MinProperties=1
type LibvirtExternalControlPlaneInitializationStatus struct {
	// controlPlaneInitialized becomes true when the API server answered for the first time, and stays true.
	// +optional
	ControlPlaneInitialized *bool `json:"controlPlaneInitialized,omitempty"`
}

// LibvirtExternalControlPlaneStatus is what the last check of the API server found.
type LibvirtExternalControlPlaneStatus struct {
	// conditions are Available, KubeconfigAvailable and Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization follows the v1beta2 contract of Cluster API.
	// +optional
	Initialization LibvirtExternalControlPlaneInitializationStatus `json:"initialization,omitempty,omitzero"`

	// externalManagedControlPlane is true: no Machine stands for the control plane's nodes, and Cluster API deletes the
	// Nodes of deleted Machines all the same.
	// +optional
	ExternalManagedControlPlane *bool `json:"externalManagedControlPlane,omitempty"`

	// versions holds the version of the API server, for instance v1.37.2.
	// +optional
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Versions []clusterv1.StatusVersion `json:"versions,omitempty"`

	// tokenExpirationTime is when the token of the kubeconfig expires. It is absent where the kubeconfig is somebody else's.
	// +optional
	TokenExpirationTime *metav1.Time `json:"tokenExpirationTime,omitempty"`

	// tokenRotationTime is when the token is replaced.
	// +optional
	TokenRotationTime *metav1.Time `json:"tokenRotationTime,omitempty"`
}

// LibvirtExternalControlPlane is the control plane of the cluster that Cluster API runs on, for Clusters whose machines join
// that same cluster. CAPLV creates no control plane: it reports the existing one to Cluster API, and keeps the Secret
// <cluster>-kubeconfig with a token that may do what Cluster API does there, and nothing else.
//
// Whoever may create it and read Secrets of its namespace can change Nodes and evict Pods of the whole cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=libvirtexternalcontrolplanes,scope=Namespaced,categories=cluster-api,shortName=lvcp
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`
// +kubebuilder:printcolumn:name="Initialized",type=boolean,JSONPath=`.status.initialization.controlPlaneInitialized`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].reason`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.versions[0].version`
// +kubebuilder:printcolumn:name="Token expires",type=date,JSONPath=`.status.tokenExpirationTime`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LibvirtExternalControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says how Cluster API reaches the cluster.
	// +optional
	// +kubebuilder:default={}
	Spec LibvirtExternalControlPlaneSpec `json:"spec,omitzero"`

	// status is what the last check found.
	// +optional
	Status LibvirtExternalControlPlaneStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions of the control plane.
func (c *LibvirtExternalControlPlane) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions of the control plane.
func (c *LibvirtExternalControlPlane) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// LibvirtExternalControlPlaneList is a list of LibvirtExternalControlPlanes.
//
// +kubebuilder:object:root=true
type LibvirtExternalControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []LibvirtExternalControlPlane `json:"items"`
}

// Conditions of a LibvirtExternalControlPlane and their reasons.
const (
	// AvailableCondition is True while the API server answers to the kubeconfig. Cluster API shows it as ControlPlaneAvailable.
	AvailableCondition = clusterv1.AvailableCondition

	// APIServerReachableReason surfaces when the API server answered.
	APIServerReachableReason = "APIServerReachable"
	// APIServerUnreachableReason surfaces when it did not: no connection, or a certificate that is not trusted.
	APIServerUnreachableReason = "APIServerUnreachable"
	// WaitingForKubeconfigReason surfaces while there is no kubeconfig to reach it with.
	WaitingForKubeconfigReason = "WaitingForKubeconfig"

	// KubeconfigAvailableCondition is True while the Secret <cluster>-kubeconfig holds a kubeconfig.
	KubeconfigAvailableCondition = "KubeconfigAvailable"

	// KubeconfigMaintainedReason surfaces when the operator keeps the Secret and its token.
	KubeconfigMaintainedReason = "KubeconfigMaintained"
	// KubeconfigProvidedReason surfaces when the Secret is somebody else's. It is used as it is, and never changed.
	KubeconfigProvidedReason = "KubeconfigProvided"
	// KubeconfigInvalidReason surfaces when somebody else's Secret holds no kubeconfig with a server.
	KubeconfigInvalidReason = "KubeconfigInvalid"
	// TokenNotIssuedReason surfaces when the API server issued no token for the service account of Cluster API.
	TokenNotIssuedReason = "TokenNotIssued"
)

// TokenRotatedReason is the reason of the Event when a token was replaced.
const TokenRotatedReason = "TokenRotated"
