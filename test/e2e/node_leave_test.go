// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/caplv/caplv/api/controlplane/v1alpha1"
)

const (
	// nodePodImage is in the node's image.
	nodePodImage = "caplv.test/pause:1"
	podTime      = 3 * time.Minute
	drainTime    = time.Minute
	linkTime     = 2 * time.Minute
)

// giveControlPlane gives Cluster API access to the cluster, so that it links and drains Nodes.
func (w *world) giveControlPlane() {
	w.t.Helper()
	w.create(&controlplanev1.LibvirtExternalControlPlane{ObjectMeta: w.meta("prod")})
	cluster := &clusterv1.Cluster{}
	w.g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "prod"}, cluster)).To(Succeed())
	base := cluster.DeepCopy()
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: controlplanev1.GroupVersion.Group, Kind: "LibvirtExternalControlPlane", Name: "prod",
	}
	w.g.Expect(suite.cp.Client().Patch(w.t.Context(), cluster, client.MergeFrom(base))).To(Succeed())
}

// expectLinked waits until Cluster API knows the Machine's Node.
func (w *world) expectLinked(name string, node *corev1.Node) {
	w.t.Helper()
	w.g.Eventually(func(g Gomega) {
		m := &clusterv1.Machine{}
		g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, m)).To(Succeed())
		g.Expect(m.Status.NodeRef.Name).To(Equal(node.Name), "conditions: %v", summary(m))
		g.Expect(m.Status.GetTypedPhase()).To(Equal(clusterv1.MachinePhaseRunning))
	}, linkTime, poll).Should(Succeed())
}

// runGuardedPod runs a Pod on the Node, and returns it with its disruption budget, which allows nothing.
func (w *world) runGuardedPod(node *corev1.Node) (*corev1.Pod, *policyv1.PodDisruptionBudget) {
	w.t.Helper()
	meta := w.meta("guarded")
	meta.Labels = map[string]string{"app": "guarded"}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		// There is no scheduler.
		NodeName: node.Name, AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(10)),
		Containers: []corev1.Container{{Name: "waits", Image: nodePodImage}},
	}}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: w.meta("guarded"), Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: meta.Labels},
	}}
	w.create(budget)
	w.create(pod)
	w.g.Eventually(func(g Gomega) {
		g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))), "%v", pod.Status)
		g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(budget), budget)).To(Succeed())
		g.Expect(budget.Status.CurrentHealthy).To(Equal(int32(1)))
	}, podTime, poll).Should(Succeed())
	return pod, budget
}

// expectHeldUp waits until the eviction of a Pod is what the Machine's deletion waits for. Nothing else has gone by then.
func (w *world) expectHeldUp(name string, node *corev1.Node, pod *corev1.Pod) {
	w.t.Helper()
	w.g.Eventually(func(g Gomega) {
		m := &clusterv1.Machine{}
		g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, m)).To(Succeed())
		g.Expect(condition(m, clusterv1.MachineDeletingCondition)).To(Equal("True/"+clusterv1.MachineDeletingDrainingNodeReason), "conditions: %v", summary(m))
		g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(node), node)).To(Succeed())
		g.Expect(node.Spec.Unschedulable).To(BeTrue())
	}, drainTime, poll).Should(Succeed())
	w.g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(pod), pod)).To(Succeed())
	w.g.Expect(pod.DeletionTimestamp.IsZero()).To(BeTrue())
	w.g.Expect(w.machine(name).DeletionTimestamp.IsZero()).To(BeTrue())
	w.g.Expect(w.on(name, "$v domstate $n")).To(Equal("running"))
}

// allow lets the budget's Pods go.
func (w *world) allow(budget *policyv1.PodDisruptionBudget) {
	w.t.Helper()
	base := budget.DeepCopy()
	budget.Spec.MinAvailable = new(intstr.FromInt32(0))
	w.g.Expect(suite.cp.Client().Patch(w.t.Context(), budget, client.MergeFrom(base))).To(Succeed())
}

// expectAllGone checks that objects are gone.
func (w *world) expectAllGone(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		w.g.Expect(apierrors.IsNotFound(suite.cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(o), o))).To(BeTrue(), "%T %s", o, o.GetName())
	}
}
