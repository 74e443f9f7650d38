// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// NodeClientCertificate is the request for a kubelet's client certificate that was approved for a machine.
type NodeClientCertificate struct {
	// requestName is the name of the CertificateSigningRequest.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	RequestName string `json:"requestName,omitempty"`

	// requestUID is its UID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	RequestUID string `json:"requestUID,omitempty"`

	// publicKeySHA256 is the digest of the public key that the certificate is for, in hexadecimal.
	// +required
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	PublicKeySHA256 string `json:"publicKeySHA256,omitempty"`
}

// Conditions of a LibvirtMachine that speak of its Node, and their reasons.
const (
	// NodeJoinedCondition is True while the machine's Node is in the cluster.
	NodeJoinedCondition = "NodeJoined"
	// NodeJoinedReason surfaces while the Node is there and has the machine's provider ID.
	NodeJoinedReason = "NodeJoined"
	// NodeNotJoinedReason surfaces until the kubelet has registered the Node.
	NodeNotJoinedReason = "NodeNotJoined"
	// ProviderIDMismatchReason surfaces while a Node of the machine's name has another provider ID; the message holds both.
	ProviderIDMismatchReason = "ProviderIDMismatch"
	// StaleNodeReason surfaces while a Node of the machine's name is older than the machine and has no provider ID.
	StaleNodeReason = "StaleNode"

	// NodeLabelledCondition says whether spec.nodeLabels and spec.nodeAnnotations are on the Node.
	NodeLabelledCondition = "NodeLabelled"
	// NodeLabelledReason surfaces when all declared keys are present on the Node.
	NodeLabelledReason = "NodeLabelled"
	// NodeMetadataRejectedReason surfaces when the API server does not let the Node have a declared key or value; the
	// message holds its words.
	NodeMetadataRejectedReason = "NodeMetadataRejected"
)
