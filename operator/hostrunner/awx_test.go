// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostrunner

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/hosts"
)

func TestHostsWithTheSameAWXShareIt(t *testing.T) {
	g := NewWithT(t)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "awx"}, Data: map[string][]byte{infrav1.AWXTokenSecretKey: []byte("t0ken")},
	}
	secrets := fake.NewClientBuilder().WithObjects(secret).Build()
	now := time.Now()
	a := NewAWX(secrets, func() time.Time { return now })
	lh := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "h"}}
	lh.Spec.Bootstrap = &infrav1.HostBootstrap{Backend: infrav1.BackendAWX, AWX: &infrav1.AWXBackend{
		URL: "https://awx.example.com", SecretRef: infrav1.LocalSecretReference{Name: "awx"},
	}}
	first, err := a.Backend(t.Context(), lh)
	g.Expect(err).NotTo(HaveOccurred())
	second := lh.DeepCopy()
	second.Name = "other"
	g.Expect(a.Backend(t.Context(), second)).To(BeIdenticalTo(first))

	secret.Data[infrav1.AWXTokenSecretKey] = []byte("another")
	g.Expect(secrets.Update(t.Context(), secret)).To(Succeed())
	now = now.Add(2 * time.Hour)
	third, err := a.Backend(t.Context(), lh)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(third).NotTo(BeIdenticalTo(first), "a changed token is used at once")
	g.Expect(a.kept).To(HaveLen(1), "the old one is not kept for ever")
}

func TestAnAWXThatCannotBeAskedSaysWhy(t *testing.T) {
	g := NewWithT(t)
	secrets := fake.NewClientBuilder().WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "empty"}}).Build()
	a := NewAWX(secrets, time.Now)
	lh := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "h"}}
	reason := func() string {
		_, err := a.Backend(t.Context(), lh)
		g.Expect(err).To(HaveOccurred())
		if said, _ := hosts.Explain(err, ""); said != "" {
			return said
		}
		return string(ansible.ReasonOf(err))
	}
	g.Expect(reason()).To(Equal(infrav1.RunnerUnavailableReason))
	lh.Spec.Bootstrap = &infrav1.HostBootstrap{Backend: infrav1.BackendAWX, AWX: &infrav1.AWXBackend{URL: "https://awx.example.com"}}
	lh.Spec.Bootstrap.AWX.SecretRef.Name = "none"
	g.Expect(reason()).To(Equal(infrav1.SecretNotFoundReason))
	lh.Spec.Bootstrap.AWX.SecretRef.Name = "empty"
	g.Expect(reason()).To(Equal(string(ansible.Rejected)))
}
