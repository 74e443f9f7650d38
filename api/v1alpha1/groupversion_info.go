// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the API of CAPLV, the Cluster API infrastructure provider for libvirt: LibvirtHost,
// LibvirtCluster and LibvirtMachine. It follows the v1beta2 contract of Cluster API.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the API group and version of this package.
	GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the types of this package to a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&LibvirtHost{}, &LibvirtHostList{},
		&LibvirtCluster{}, &LibvirtClusterList{},
		&LibvirtMachine{}, &LibvirtMachineList{},
		&LibvirtRemediation{}, &LibvirtRemediationList{},
		&LibvirtRemediationTemplate{}, &LibvirtRemediationTemplateList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
