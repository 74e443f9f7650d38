// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// +kubebuilder:webhook:path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirtcluster,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,sideEffects=None,groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusters,verbs=create;update,versions=v1alpha1,name=validation.libvirtcluster.infrastructure.cluster.x-k8s.io,admissionReviewVersions=v1,timeoutSeconds=10

// Cluster validates LibvirtClusters.
type Cluster struct{}

// ValidateCreate returns all problems of a new cluster as one error.
func (c *Cluster) ValidateCreate(_ context.Context, lc *infrav1.LibvirtCluster) (admission.Warnings, error) {
	return nil, invalid("LibvirtCluster", lc.Name, validateCluster(lc))
}

// ValidateUpdate returns the problems that an update adds.
func (c *Cluster) ValidateUpdate(_ context.Context, before, lc *infrav1.LibvirtCluster) (admission.Warnings, error) {
	if !lc.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	problems := newProblems(validateCluster(lc), validateCluster(before))
	return nil, invalid("LibvirtCluster", lc.Name, append(problems, validateEndpointIsKept(before, lc)...))
}

// ValidateDelete lets every cluster go.
func (c *Cluster) ValidateDelete(context.Context, *infrav1.LibvirtCluster) (admission.Warnings, error) {
	return nil, nil
}

// validateEndpointIsKept refuses another endpoint once the control plane was reached at the first. Cluster API has copied
// it into the Cluster by then, and does so only once. Until then it may have been a mistake, and can be mended.
func validateEndpointIsKept(before, lc *infrav1.LibvirtCluster) field.ErrorList {
	was, is := before.Spec.ControlPlaneEndpoint, lc.Spec.ControlPlaneEndpoint
	if !ptr.Deref(before.Status.Initialization.Provisioned, false) || was.IsZero() || was == is {
		return nil
	}
	value := any(is.String())
	if is.IsZero() {
		value = ""
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "controlPlaneEndpoint"), value, fmt.Sprintf(
		"the endpoint %s is in use and cannot be changed, because the Cluster keeps its copy; put it back, or create Cluster and LibvirtCluster anew", was.String()))}
}

// validateCluster returns what is wrong with a cluster by itself.
func validateCluster(lc *infrav1.LibvirtCluster) field.ErrorList {
	spec := field.NewPath("spec")
	problems := validateEndpoint(spec.Child("controlPlaneEndpoint"), lc.Spec.ControlPlaneEndpoint)
	problems = append(problems, validateBootArtifacts(spec.Child("bootArtifacts"), lc.Spec.BootArtifacts, lc.Namespace)...)
	if image := lc.Spec.BaseImage; image != nil {
		source := spec.Child("baseImage", "source")
		if s := image.Source.HTTPS; s != nil {
			problems = append(problems, validateCredentials(source.Child("https"), s.CredentialsSecretRef, lc.Namespace)...)
		}
		if s := image.Source.OCI; s != nil {
			problems = append(problems, validateCredentials(source.Child("oci"), s.CredentialsSecretRef, lc.Namespace)...)
		}
		if s := image.Source.S3; s != nil {
			problems = append(problems, validateCredentials(source.Child("s3"), s.CredentialsSecretRef, lc.Namespace)...)
		}
	}
	return problems
}

// validateEndpoint checks that an endpoint, if there is one, is a host and a port.
func validateEndpoint(p *field.Path, endpoint clusterv1.APIEndpoint) field.ErrorList {
	if endpoint.IsZero() {
		return nil
	}
	var problems field.ErrorList
	_, err := netip.ParseAddr(endpoint.Host)
	switch {
	case endpoint.Host == "":
		problems = append(problems, field.Required(p.Child("host"), "an endpoint has both host and port; set the API server's name or address, or remove the endpoint"))
	case err != nil && len(validation.IsDNS1123Subdomain(strings.ToLower(endpoint.Host))) > 0:
		problems = append(problems, field.Invalid(p.Child("host"), endpoint.Host,
			"host must be a DNS name or an IP address, without scheme, brackets, port or path, such as api.example.com"))
	}
	if endpoint.Port == 0 {
		problems = append(problems, field.Required(p.Child("port"), "an endpoint has both host and port; set the API server's port, which usually is 6443"))
	}
	return problems
}

// validateCredentials checks a reference to a Secret, which must be in the namespace of the object that refers to it.
func validateCredentials(p *field.Path, ref *infrav1.CredentialsSecretReference, namespace string) field.ErrorList {
	if ref == nil {
		return nil
	}
	p = p.Child("credentialsSecretRef")
	problems := validateReference(p.Child("name"), "Secret", ref.Name)
	if ref.Namespace != "" && ref.Namespace != namespace {
		problems = append(problems, field.Invalid(p.Child("namespace"), ref.Namespace, fmt.Sprintf(
			"only Secrets of the LibvirtCluster's own namespace, %s, can be used; put a copy there, and remove the field", namespace)))
	}
	return problems
}
