// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// join registers the Node of a machine that runs, as its kubelet would. Nobody has to remove it.
func (w *world) join(name string) *corev1.Node {
	w.t.Helper()
	lm := w.expectMachine(name, infrav1.MachineReadyCondition, "True/Running")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: lm.Status.NodeName}, Spec: corev1.NodeSpec{ProviderID: lm.Spec.ProviderID}}
	w.g.Expect(suite.cp.Client().Create(w.t.Context(), node)).To(Succeed())
	w.t.Cleanup(func() {
		if err := client.IgnoreNotFound(suite.cp.Client().Delete(context.WithoutCancel(w.t.Context()), node)); err != nil {
			w.t.Errorf("deleting a Node: %v", err)
		}
	})
	return node
}

// TestAMachineLeavesBeforeItsGuestEnds deletes a machine as 5-Spot does, with a Pod on its Node whose disruption budget allows nothing: the guest runs
// until the Pod may be evicted, is asked to shut down by its power button, and is destroyed when it does not.
func TestAMachineLeavesBeforeItsGuestEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.expectHost("True/HostReady")
	c := suite.cp.Client()
	lm := w.libvirtMachine("worker01")
	ephemeral(&lm.Spec)
	lm.Spec.Deletion.ShutdownGracePeriodSeconds = new(int32(4))
	w.createMachine(lm)
	node := w.join("worker01")

	labels := map[string]string{"app": "guarded"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "guarded", Labels: labels}, Spec: corev1.PodSpec{
		NodeName: node.Name, TerminationGracePeriodSeconds: new(int64(0)), Containers: []corev1.Container{{Name: "c", Image: "example.com/image"}},
	}}
	w.g.Expect(c.Create(t.Context(), pod)).To(Succeed())
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	w.g.Expect(c.Status().Update(t.Context(), pod)).To(Succeed())
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "guarded"}, Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
	}}
	w.g.Expect(c.Create(t.Context(), budget)).To(Succeed())
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
	w.g.Expect(c.Status().Update(t.Context(), budget)).To(Succeed())

	w.deleteMachine("worker01")
	w.expectMachine("worker01", infrav1.DrainingCondition, "True/DrainingNode")
	w.g.Expect(w.on("worker01", "$v domstate $n")).To(Equal("running"))
	budget.Status.DisruptionsAllowed = 1
	w.g.Expect(c.Status().Update(t.Context(), budget)).To(Succeed())
	began := time.Now()
	w.expectGone("worker01")
	t.Logf("evicted, shut down and removed %s after the budget allowed it", time.Since(began).Round(100*time.Millisecond))
	for _, o := range []client.Object{pod, node} {
		w.g.Expect(apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(o), o))).To(BeTrue(), o.GetName())
	}
	w.expectListing(w.untouched)
}
