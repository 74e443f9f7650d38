// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/domain"
)

// nodeRow is a Node that has the name of a machine.
type nodeRow struct {
	name        string
	providerID  string
	annotations map[string]string
	// change adds to what there is.
	change func(*bench)
	// goes says that it is deleted.
	goes bool
}

var nodeRows = []nodeRow{
	{"it has the provider ID of an earlier machine", "libvirt://h/" + domain.UUID("earlier"), nil, nil, true},
	{"it has that of an earlier machine on another host", "libvirt://other/" + domain.UUID("earlier"), nil, nil, true},
	{"it has no provider ID, and the operator's annotation", "", map[string]string{infrav1.ManagedLabelsAnnotation: "a"}, nil, true},
	{"it has neither", "", nil, nil, false},
	{"it has the provider ID of another provider", "aws:///us-east-1a/i-1", map[string]string{infrav1.ManagedLabelsAnnotation: "a"}, nil, false},
	{"it has a provider ID of libvirt that CAPLV cannot have made", "libvirt://h/4f1c0b6e-6b7a-4c8d-9a51-0f3f6f6b2a10", nil, nil, false},
	{"it has the provider ID of a machine that exists", "libvirt://h/" + domain.UUID("living"), nil, func(b *bench) {
		living := newObjects().lmachine
		living.Name, living.UID = "living", "living"
		b.Expect(b.r.Client.Create(b.t.Context(), living)).To(Succeed())
		living.Status.DomainUUID = domain.UUID("living")
		b.Expect(b.r.Client.Status().Update(b.t.Context(), living)).To(Succeed())
	}, false},
}

// put creates the Node.
func (row nodeRow) put(b *bench) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "ns-prod-m", UID: "node-1", Annotations: row.annotations}, Spec: corev1.NodeSpec{ProviderID: row.providerID},
	}
	b.Expect(b.r.Client.Create(b.t.Context(), node)).To(Succeed())
	if row.change != nil {
		row.change(b)
	}
	return node
}

func (b *bench) gone(node *corev1.Node) bool {
	err := b.r.Client.Get(b.t.Context(), client.ObjectKeyFromObject(node), node)
	return apierrors.IsNotFound(err)
}

func TestAMachineStartsOnlyWhenNoNodeHasItsName(t *testing.T) {
	for _, row := range nodeRows {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, nil)
			node := row.put(b)
			lm, result := b.reconcile()
			if !row.goes {
				b.Expect(b.gone(node)).To(BeFalse())
				b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.NodeAlreadyExistsReason))
				b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring("Node ns-prod-m"))
				b.Expect(b.connector.host.steps).To(BeEmpty(), "nothing may be created on the host")
				b.Expect(<-b.recorder.Events).To(ContainSubstring("Warning NodeAlreadyExists"))
				b.Expect(result.RequeueAfter).To(BeNumerically(">", 0))
				b.Expect(b.r.Client.Delete(t.Context(), node)).To(Succeed())
				lm, _ = b.reconcile()
			} else {
				b.Expect(b.gone(node)).To(BeTrue())
				b.Expect(<-b.recorder.Events).To(ContainSubstring("Normal StaleNodeDeleted"))
			}
			b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue())
		})
	}
}

func TestANodeOfAnEarlierMachineGoesAlsoWhenItComesBackLater(t *testing.T) {
	for _, row := range nodeRows {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, nil)
			b.reconcile()
			node := row.put(b)
			// Without a provider ID, a Node that has come after the machine may be its own.
			node.CreationTimestamp = metav1.Unix(1, 0)
			b.Expect(b.r.Client.Update(t.Context(), node)).To(Succeed())
			lm, _ := b.reconcile()
			b.Expect(b.gone(node)).To(Equal(row.goes))
			b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue(), "it runs")
		})
	}
}

func TestTheMachinesOwnNodeStays(t *testing.T) {
	b := newBench(t, nil)
	lm, _ := b.reconcile()
	node := nodeRow{providerID: lm.Spec.ProviderID}.put(b)
	lm, _ = b.reconcile()
	b.Expect(b.gone(node)).To(BeFalse())
	b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue())
}
