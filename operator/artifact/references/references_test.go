// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package references

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/artifact/fetch"
)

// told is a Cache that hands on what it is told.
type told chan []fetch.Source

func (c told) SetReferenced(sources []fetch.Source) { c <- sources }

func cluster(namespace string, spec infrav1.LibvirtClusterSpec) *infrav1.LibvirtCluster {
	return &infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "prod"}, Spec: spec}
}

func TestTheCacheIsToldOfTheSourcesOfAllClusters(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		cluster("plain", infrav1.LibvirtClusterSpec{}),
		cluster("https", infrav1.LibvirtClusterSpec{BaseImage: &infrav1.BaseImage{Source: infrav1.BaseImageSource{
			Type: infrav1.SourceTypeHTTPS, HTTPS: &infrav1.HTTPSBaseImage{
				URL: "https://mirror.example.com/base.qcow2", SHA256: "aa",
				HTTPSAccess: infrav1.HTTPSAccess{CredentialsSecretRef: &infrav1.CredentialsSecretReference{Name: "creds"}},
			},
		}}}),
		cluster("oci", infrav1.LibvirtClusterSpec{BootArtifacts: &infrav1.BootArtifacts{Source: infrav1.BootArtifactsSource{
			Type: infrav1.SourceTypeOCI, OCI: &infrav1.OCIBootArtifacts{OCIAccess: infrav1.OCIAccess{Reference: "registry.example.com/boot:1"}},
		}}}),
		// Its member is missing: it is refused elsewhere, and refers to nothing.
		cluster("broken", infrav1.LibvirtClusterSpec{BaseImage: &infrav1.BaseImage{Source: infrav1.BaseImageSource{Type: infrav1.SourceTypeS3}}}),
	).Build()
	cache := make(told)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- (&Keeper{Cache: cache, Client: c, Log: logr.Discard()}).Start(ctx) }()
	g.Expect(<-cache).To(ConsistOf(
		And(HaveField("Location", fetch.HTTPS{URL: "https://mirror.example.com/base.qcow2"}), HaveField("SHA256", "aa")),
		HaveField("Location", fetch.OCI{Reference: "registry.example.com/boot:1", Title: "vmlinuz"}),
		HaveField("Location", fetch.OCI{Reference: "registry.example.com/boot:1", Title: "initramfs.img"}),
	))
	cancel()
	g.Expect(<-ended).To(Succeed())
}

func TestWithoutAnAnswerTheCacheKeepsWhatItWasTold(t *testing.T) {
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no answer")
		},
	}).Build()
	err := (&Keeper{Cache: make(told), Client: c}).tell(t.Context())
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("listing LibvirtClusters: no answer")))
}
