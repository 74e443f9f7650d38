// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds LibvirtExternalControlPlane, the control plane of a Cluster whose machines join the cluster that
// Cluster API and CAPLV run on. It follows the v1beta2 contract of Cluster API for control planes.
//
// +kubebuilder:object:generate=true
// +groupName=controlplane.cluster.x-k8s.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the API group and version of this package.
	GroupVersion = schema.GroupVersion{Group: "controlplane.cluster.x-k8s.io", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the types of this package to a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &LibvirtExternalControlPlane{}, &LibvirtExternalControlPlaneList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
