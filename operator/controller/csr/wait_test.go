// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	reconciler "github.com/caplv/caplv/operator/controller/csr"
	"github.com/caplv/caplv/operator/csr"
)

const egressIPs = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: egressips.k8s.ovn.org}
spec:
  group: k8s.ovn.org
  scope: Cluster
  names: {kind: EgressIP, listKind: EgressIPList, plural: egressips, singular: egressip}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// waiting is a request that has to wait, and what ends that.
type waiting struct {
	name string
	// reason is that of the Event.
	reason string
	post   func(*bench) *certificatesv1.CertificateSigningRequest
	end    func(*bench)
}

// TestARequestThatWaitedIsApproved shows that no second request is needed: a kubelet makes one only after 15 minutes.
func TestARequestThatWaitedIsApproved(t *testing.T) {
	suite.resolver.broken.Store(false)
	for _, row := range []waiting{
		{"until-the-domain-runs", "CertificateDomainNotRunning", func(b *bench) *certificatesv1.CertificateSigningRequest {
			b.setStatus(func(lm *infrav1.LibvirtMachine) { setRunning(lm, metav1.ConditionUnknown) })
			return b.post(b.client())
		}, func(b *bench) {
			b.setStatus(func(lm *infrav1.LibvirtMachine) { setRunning(lm, metav1.ConditionTrue) })
		}},
		{"until-it-is-recorded-as-started", "CertificateMachineNotStarted", func(b *bench) *certificatesv1.CertificateSigningRequest {
			b.setStatus(func(lm *infrav1.LibvirtMachine) { lm.Status.Initialization.Provisioned = nil })
			return b.post(b.client())
		}, func(b *bench) {
			b.setStatus(func(lm *infrav1.LibvirtMachine) { lm.Status.Initialization.Provisioned = new(true) })
		}},
		{"until-the-stale-node-is-gone", "CertificateStaleNode", func(b *bench) *certificatesv1.CertificateSigningRequest {
			b.addNode("libvirt://h/an-earlier-incarnation")
			return b.post(b.client())
		}, func(b *bench) {
			b.Expect(b.c.Delete(b.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.node()}})).To(Succeed())
		}},
		{"until-the-pause-is-over", "CertificateMachinePaused", func(b *bench) *certificatesv1.CertificateSigningRequest {
			b.annotate(map[string]string{clusterv1.PausedAnnotation: ""})
			return b.post(b.client())
		}, func(b *bench) { b.annotate(nil) }},
		{"until-the-node-is-there", "CertificateNodeNotJoined", func(b *bench) *certificatesv1.CertificateSigningRequest {
			return b.post(b.serving())
		}, func(b *bench) { b.addNode(b.lm.Spec.ProviderID) }},
		{"until-the-node-has-a-provider-id", "CertificateProviderIDMissing", func(b *bench) *certificatesv1.CertificateSigningRequest {
			b.addNode("")
			return b.post(b.serving())
		}, func(b *bench) {
			node := &corev1.Node{}
			b.Expect(b.c.Get(b.t.Context(), client.ObjectKey{Name: b.node()}, node)).To(Succeed())
			base := node.DeepCopy()
			node.Spec.ProviderID = b.lm.Spec.ProviderID
			b.Expect(b.c.Patch(b.t.Context(), node, client.MergeFrom(base))).To(Succeed())
		}},
		{"until-names-are-resolved", "CertificateClusterIdentityUnknown", func(b *bench) *certificatesv1.CertificateSigningRequest {
			b.addNode(b.lm.Spec.ProviderID)
			suite.resolver.broken.Store(true)
			return b.post(b.serving())
		}, func(*bench) { suite.resolver.broken.Store(false) }},
		{"until-the-egress-ip-is-assigned", "CertificateEgressIPNotAssigned", func(b *bench) *certificatesv1.CertificateSigningRequest {
			b.addNode(b.lm.Spec.ProviderID)
			b.Expect(suite.cp.Apply(b.t.Context(), []byte(egressIPs))).To(Succeed())
			r := b.serving()
			r.addresses = append(r.addresses, "192.0.2.99")
			return b.post(r)
		}, func(b *bench) {
			egressIP := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "k8s.ovn.org/v1", "kind": "EgressIP", "metadata": map[string]any{"name": "e"},
				"status": map[string]any{"items": []any{map[string]any{"node": b.node(), "egressIP": "192.0.2.99"}}},
			}}
			b.create(egressIP)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, row.name, nil)
			object := row.post(b)
			b.expectEvent(object, row.reason)
			b.expectEvent(b.lm, row.reason)
			b.Expect(b.state(object)).To(BeEmpty())
			row.end(b)
			b.expectApproved(object)
		})
	}
}

func TestTheBrakeHoldsWhileTooManyArePending(t *testing.T) {
	b := newBench(t, "flood", nil)
	stranger := b.client()
	stranger.subject = subject("stranger")
	flood := make([]*certificatesv1.CertificateSigningRequest, csr.PendingMargin+10)
	for i := range flood {
		flood[i] = b.post(stranger)
	}
	object := b.post(b.client())
	b.expectEvent(object, "CertificateTooManyPending")
	b.Expect(b.state(object)).To(BeEmpty())
	registry := prometheus.NewRegistry()
	b.Expect(reconciler.RegisterMetrics(registry)).To(Succeed())
	b.Expect(value(b, registry, "caplv_csr_pending", nil)).To(BeNumerically(">", value(b, registry, "caplv_csr_pending_limit", nil)))
	for _, one := range flood {
		b.Expect(b.c.Delete(context.Background(), one)).To(Succeed())
	}
	b.expectApproved(object)
}

// annotate replaces the machine's annotations.
func (b *bench) annotate(annotations map[string]string) {
	b.t.Helper()
	b.Expect(b.c.Get(b.t.Context(), client.ObjectKeyFromObject(b.lm), b.lm)).To(Succeed())
	b.lm.Annotations = annotations
	b.Expect(b.c.Update(b.t.Context(), b.lm)).To(Succeed())
}
