// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The condition of a LibvirtMachine that boots its LibvirtCluster's kernel directly, and its reasons. A source without its Secret has
// SecretNotFoundReason.
const (
	// BootArtifactsStagedCondition says whether the cluster's kernel and initramfs are on the host.
	BootArtifactsStagedCondition = "BootArtifactsStaged"
	// BootArtifactsStagingReason surfaces while they are being fetched, compared or sent to the host; the message says how far that is.
	BootArtifactsStagingReason = "BootArtifactsStaging"
	// BootArtifactsStagedReason surfaces when both are on the host, with their digests.
	BootArtifactsStagedReason = "BootArtifactsStaged"
	// BootArtifactsFetchFailedReason surfaces when the operator could not fetch one of them; the message says what the source answered.
	BootArtifactsFetchFailedReason = "BootArtifactsFetchFailed"
	// BootArtifactsStagingFailedReason surfaces when the host did not take one of them; the message has its words.
	BootArtifactsStagingFailedReason = "BootArtifactsStagingFailed"
)

// HostBootArtifact is a kernel or an initramfs that the operator has put on a host, or is about to.
type HostBootArtifact struct {
	// hostPath is the directory below which it is, as the LibvirtCluster said.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	HostPath string `json:"hostPath"`

	// sha256 is the digest of the file, and the name of its directory.
	// +required
	// +kubebuilder:validation:MinLength=1
	SHA256 SHA256 `json:"sha256"`

	// clusterName is the LibvirtCluster that wants the file. It is absent when a newer file has replaced it: it is removed with the host's machine.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterName string `json:"clusterName,omitempty"`

	// stagedAt is when it was first seen to be complete. It is absent until then.
	// +optional
	StagedAt *metav1.Time `json:"stagedAt,omitempty"`
}
