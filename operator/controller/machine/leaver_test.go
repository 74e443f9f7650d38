// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

const (
	leaveBound = 30 * time.Second
	leaveTick  = 50 * time.Millisecond
	// held is the finalizer of a Pod that a kubelet, which the tests do not have, takes its time to end.
	held = "example.com/held"
)

// leaver is a machine that runs, on a host of its own, and that is to be deleted.
type leaver struct {
	*fleet
	name string
	host *fakeHost
	// connector has the host.
	connector *guardedConnector
	// deletedAt is when the test deleted it.
	deletedAt time.Time
}

// newLeaver waits until the machine runs. change may be nil.
func newLeaver(t *testing.T, f *fleet, connector *guardedConnector, name string, change func(*infrav1.LibvirtMachine)) *leaver {
	t.Helper()
	l := &leaver{fleet: &fleet{WithT: NewWithT(t), t: t, c: f.c}, name: name, host: newFakeHost(), connector: connector}
	connector.mu.Lock()
	connector.hosts["host-"+name] = probedHost{l.host}
	connector.mu.Unlock()
	l.addHost("host-"+name, name+".example.com")
	l.Expect(l.addMachineAs(name, "host-"+name, change)).To(Succeed())
	l.expect(infrav1.MachineReadyCondition, "True/Running")
	return l
}

func (l *leaver) nodeName() string { return "default-prod-" + l.name }

func (l *leaver) machine() *infrav1.LibvirtMachine {
	lm := &infrav1.LibvirtMachine{}
	l.Expect(l.c.Get(l.t.Context(), client.ObjectKey{Namespace: "default", Name: l.name}, lm)).To(Succeed())
	return lm
}

// change changes the machine as a user.
func (l *leaver) change(change func(*infrav1.LibvirtMachine)) {
	lm := l.machine()
	base := lm.DeepCopy()
	change(lm)
	l.Expect(l.c.Patch(l.t.Context(), lm, client.MergeFrom(base))).To(Succeed())
}

// expect waits for STATUS/REASON of a condition, and returns its message.
func (l *leaver) expect(conditionType, want string) string {
	l.t.Helper()
	var message string
	l.Eventually(func() string {
		c := conditions.Get(l.machine(), conditionType)
		if c == nil {
			return ""
		}
		message = c.Message
		return string(c.Status) + "/" + c.Reason
	}, leaveBound, leaveTick).Should(Equal(want))
	return message
}

// join registers the machine's Node, as its kubelet does.
func (l *leaver) join(change func(*corev1.Node)) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.nodeName()}, Spec: corev1.NodeSpec{ProviderID: l.machine().Spec.ProviderID}}
	if change != nil {
		change(node)
	}
	status := node.Status
	l.create(node)
	node.Status = status
	l.Expect(l.c.Status().Update(l.t.Context(), node)).To(Succeed())
}

// pod has a Pod run on the Node. Without a kubelet, it is gone as soon as it is evicted, unless something holds it.
func (l *leaver) pod(kind string, change func(*corev1.Pod)) *corev1.Pod {
	l.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: kind + "-" + l.name, Labels: map[string]string{"app": kind + "-" + l.name}},
		Spec: corev1.PodSpec{
			NodeName: l.nodeName(), TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{Name: "c", Image: "example.com/image"}},
		},
	}
	if change != nil {
		change(pod)
	}
	// A disruption budget does not count Pods that do not run.
	l.setStatus(pod, func() {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
	return pod
}

func hold(pod *corev1.Pod) { pod.Finalizers = []string{held} }

// release lets a Pod that was held end.
func (l *leaver) release(pod *corev1.Pod) {
	l.Expect(l.c.Get(l.t.Context(), client.ObjectKeyFromObject(pod), pod)).To(Succeed())
	l.Expect(pod.DeletionTimestamp).NotTo(BeNil(), "it must have been evicted")
	pod.Finalizers = nil
	l.Expect(l.c.Update(l.t.Context(), pod)).To(Succeed())
}

// budget protects a Pod. There is no controller that would count what the budget allows.
func (l *leaver) budget(pod *corev1.Pod, allowed int32) *policyv1.PodDisruptionBudget {
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}},
	}
	l.create(budget)
	l.allow(budget, allowed)
	return budget
}

func (l *leaver) allow(budget *policyv1.PodDisruptionBudget, allowed int32) {
	l.Expect(l.c.Get(l.t.Context(), client.ObjectKeyFromObject(budget), budget)).To(Succeed())
	budget.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: budget.Generation, DisruptionsAllowed: allowed, CurrentHealthy: 1, DesiredHealthy: 1 - allowed, ExpectedPods: 1,
	}
	l.Expect(l.c.Status().Update(l.t.Context(), budget)).To(Succeed())
}

func (l *leaver) delete() {
	l.deletedAt = time.Now()
	l.Expect(l.c.Delete(l.t.Context(), l.machine())).To(Succeed())
}

// exists returns whether an object is there.
func (l *leaver) exists(o client.Object) bool {
	err := l.c.Get(l.t.Context(), client.ObjectKeyFromObject(o), o)
	l.Expect(client.IgnoreNotFound(err)).NotTo(HaveOccurred())
	return err == nil
}

func (l *leaver) nodeExists() bool {
	return l.exists(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.nodeName()}})
}

// expectGone waits until the machine is gone, with its domain, and returns how long it took.
func (l *leaver) expectGone() time.Duration {
	l.t.Helper()
	l.Eventually(func() bool {
		err := l.c.Get(l.t.Context(), client.ObjectKey{Namespace: "default", Name: l.name}, &infrav1.LibvirtMachine{})
		return apierrors.IsNotFound(err)
	}, leaveBound, leaveTick).Should(BeTrue())
	took := time.Since(l.deletedAt)
	l.Expect(l.host.did()).To(ContainElement("undefine " + l.nodeName()))
	return took
}

// expectObjectGone waits until the machine is gone, whatever is left on its host.
func (l *leaver) expectObjectGone() {
	l.t.Helper()
	l.Eventually(func() bool {
		return l.exists(&infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: l.name}})
	}, leaveBound, leaveTick).Should(BeFalse())
}

// reachable cuts the host off, or brings it back.
func (l *leaver) reachable(yes bool) {
	l.connector.mu.Lock()
	defer l.connector.mu.Unlock()
	l.connector.down["host-"+l.name] = !yes
}

func (l *leaver) lhost() *infrav1.LibvirtHost {
	lh := &infrav1.LibvirtHost{}
	l.Expect(l.c.Get(l.t.Context(), client.ObjectKey{Namespace: "default", Name: "host-" + l.name}, lh)).To(Succeed())
	return lh
}

// expectUntouched makes sure that nothing of the machine has ended on its host.
func (l *leaver) expectUntouched() {
	l.t.Helper()
	l.Expect(l.host.did()).To(HaveEach(Not(Or(HavePrefix("shutdown"), HavePrefix("destroy"), HavePrefix("delete"), HavePrefix("undefine")))))
	l.Expect(l.nodeExists()).To(BeTrue())
}

// ended lists how the domain came to its end: shutdown, destroy, or both in their order.
func (l *leaver) ended() []string {
	var how []string
	for _, step := range l.host.did() {
		verb, name, _ := strings.Cut(step, " ")
		if name == l.nodeName() && slices.Contains([]string{"shutdown", "destroy"}, verb) {
			how = append(how, verb)
		}
	}
	return how
}

// expectEvents waits for Events about the machine.
func (l *leaver) expectEvents(reasons ...string) {
	l.t.Helper()
	l.Eventually(func() []string {
		list := &eventsv1.EventList{}
		l.Expect(l.c.List(l.t.Context(), list)).To(Succeed())
		var found []string
		for i := range list.Items {
			if list.Items[i].Regarding.Name == l.name {
				found = append(found, list.Items[i].Reason)
			}
		}
		return found
	}, leaveBound, leaveTick).Should(ContainElements(reasons))
}
