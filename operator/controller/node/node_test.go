// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// keys are what a kubelet may not set itself.
var keys = map[string]string{"node-role.kubernetes.io/app": "", "k8s.ovn.org/egress-assignable": "", "dynatrace": "true"}

func TestANodeIsLabelledWhenItAppears(t *testing.T) {
	b := newBench(t, "appears", keys, map[string]string{"example.com/owner": "platform-team"})
	b.expectCondition(infrav1.NodeJoinedCondition, "False/NodeNotJoined")
	b.Expect(b.expectCondition(infrav1.NodeLabelledCondition, "False/NodeNotJoined")).To(ContainSubstring("default-prod-appears"))

	joined := time.Now()
	b.join("")
	b.expectNode(func(g Gomega, n *corev1.Node) {
		g.Expect(n.Spec.ProviderID).To(Equal("libvirt://h/appears"))
		for key, value := range keys {
			g.Expect(n.Labels).To(HaveKeyWithValue(key, value))
		}
		g.Expect(n.Labels).To(HaveKeyWithValue("kubernetes.io/os", "linux"))
		g.Expect(n.Annotations).To(And(
			HaveKeyWithValue("example.com/owner", "platform-team"),
			HaveKeyWithValue(infrav1.ManagedLabelsAnnotation, "dynatrace,k8s.ovn.org/egress-assignable,node-role.kubernetes.io/app"),
			HaveKeyWithValue(infrav1.ManagedAnnotationsAnnotation, "example.com/owner"),
		))
	})
	// The fallback would need up to 15 s.
	b.Expect(time.Since(joined)).To(BeNumerically("<", 5*time.Second))
	b.expectCondition(infrav1.NodeJoinedCondition, "True/NodeJoined")
	b.expectCondition(infrav1.NodeLabelledCondition, "True/NodeLabelled")
	b.expectEvent("ProviderIDSet")
	b.expectEvent("NodeLabelled")
}

func TestDriftIsPutBackAndForeignKeysStay(t *testing.T) {
	b := newBench(t, "drifts", keys, nil)
	b.join("libvirt://h/drifts")
	b.expectCondition(infrav1.NodeLabelledCondition, "True/NodeLabelled")
	b.changeNode(func(n *corev1.Node) {
		n.Labels["dynatrace"] = "false"
		delete(n.Labels, "node-role.kubernetes.io/app")
		n.Labels["admins"] = "own"
		delete(n.Annotations, infrav1.ManagedLabelsAnnotation)
	})
	b.expectNode(func(g Gomega, n *corev1.Node) {
		g.Expect(n.Labels).To(And(HaveKeyWithValue("dynatrace", "true"), HaveKey("node-role.kubernetes.io/app"), HaveKeyWithValue("admins", "own")))
		g.Expect(n.Annotations).To(HaveKey(infrav1.ManagedLabelsAnnotation))
	})

	b.change(func(lm *infrav1.LibvirtMachine) { lm.Spec.NodeLabels = map[string]string{"dynatrace": "maybe"} })
	b.expectNode(func(g Gomega, n *corev1.Node) {
		g.Expect(n.Labels).To(And(HaveKeyWithValue("dynatrace", "maybe"), HaveKeyWithValue("admins", "own"), Not(HaveKey("node-role.kubernetes.io/app"))))
	})
	b.change(func(lm *infrav1.LibvirtMachine) { lm.Spec.NodeLabels = nil })
	b.expectCondition(infrav1.NodeLabelledCondition, "")
	b.expectNode(func(g Gomega, n *corev1.Node) {
		g.Expect(n.Labels).To(And(Not(HaveKey("dynatrace")), HaveKeyWithValue("admins", "own"), HaveKeyWithValue("kubernetes.io/os", "linux")))
		g.Expect(n.Annotations).NotTo(HaveKey(infrav1.ManagedLabelsAnnotation))
	})
}

func TestANodeThatIsNotTheMachinesIsLeftAlone(t *testing.T) {
	for _, row := range []struct {
		name, providerID, reason string
		// started is when the machine began to be created, from now.
		started time.Duration
	}{
		{"mismatch", "libvirt://h/another", "ProviderIDMismatch", 0},
		{"stale", "", "StaleNode", time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, row.name, keys, nil)
			b.expectCondition(infrav1.NodeJoinedCondition, "False/NodeNotJoined")
			base := b.lm.DeepCopy()
			b.lm.Status.CreationStartedAt = new(metav1.NewTime(time.Now().Add(row.started)))
			b.Expect(b.c.Status().Patch(t.Context(), b.lm, client.MergeFrom(base))).To(Succeed())
			b.join(row.providerID)
			b.Expect(b.expectCondition(infrav1.NodeJoinedCondition, "False/"+row.reason)).To(ContainSubstring("delete it"))
			b.expectCondition(infrav1.NodeLabelledCondition, "False/"+row.reason)
			b.expectEvent(row.reason)
			n := b.node()
			b.Expect(n.Labels).NotTo(HaveKey("dynatrace"))
			b.Expect(n.Spec.ProviderID).To(Equal(row.providerID))

			b.Expect(b.c.Delete(t.Context(), n)).To(Succeed())
			b.expectCondition(infrav1.NodeJoinedCondition, "False/NodeNotJoined")
		})
	}
}

func TestAKeyThatTheAPIServerRefusesIsNamed(t *testing.T) {
	b := newBench(t, "refused", map[string]string{"a": "not a value"}, nil)
	b.join("")
	b.Expect(b.expectCondition(infrav1.NodeLabelledCondition, "False/NodeMetadataRejected")).To(ContainSubstring("not a value"))
	b.expectCondition(infrav1.NodeJoinedCondition, "True/NodeJoined")
	b.Expect(b.node().Spec.ProviderID).To(Equal("libvirt://h/refused"), "labels that are refused do not hold up the provider ID")

	b.change(func(lm *infrav1.LibvirtMachine) { lm.Spec.NodeLabels = map[string]string{"a": "value"} })
	b.expectCondition(infrav1.NodeLabelledCondition, "True/NodeLabelled")
}

func TestAPausedMachinesNodeIsLeftAlone(t *testing.T) {
	b := newBench(t, "paused", keys, nil)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prod"}, Spec: clusterv1.ClusterSpec{
		Paused:            new(true),
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtCluster", Name: "prod"},
	}}
	b.create(cluster)
	time.Sleep(time.Second) // Until the manager's cache has it.
	b.join("")
	b.Consistently(func() string { return b.node().Spec.ProviderID }, 2*time.Second, 200*time.Millisecond).Should(BeEmpty())
	base := cluster.DeepCopy()
	cluster.Spec.Paused = nil
	b.Expect(b.c.Patch(t.Context(), cluster, client.MergeFrom(base))).To(Succeed())
	b.expectCondition(infrav1.NodeLabelledCondition, "True/NodeLabelled")
}
