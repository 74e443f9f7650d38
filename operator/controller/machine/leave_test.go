// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hosts"
)

// TestAMachineLeavesItsCluster is about the Node of a machine that is deleted, on a real API server with the rights that the
// operator is shipped with. All machines leave at the same time and share one worker: none may hold it up.
func TestAMachineLeavesItsCluster(t *testing.T) {
	connector := &guardedConnector{hosts: map[string]probedHost{}, down: map[string]bool{}}
	f := startFleet(t, fleetOptions{workers: 1, shippedRights: true}, func(client.Reader) hosts.Connector { return connector })
	f.prepare()
	rows := []struct {
		name   string
		change func(*infrav1.LibvirtMachine)
		leave  func(*leaver)
	}{
		{"its Pods are evicted, then its guest shuts down, and then its Node is deleted", nil, evicted},
		{"a disruption budget is respected as long as the drain may take", nil, budgeted},
		{"Pods that are left when the drain times out end with the machine", within(2, nil), timedOut},
		{"where the policy is to wait, the drain goes on after its timeout", within(1, func(d *infrav1.LibvirtMachineDeletionSpec) { d.OnDrainTimeout = infrav1.DrainTimeoutWait }), waits},
		{"an annotation ends a drain", nil, annotatedMidway},
		{"the Machine excludes drain", nil, excludedByMachine},
		{"Cluster API has drained the Node", nil, drainedAlready},
		{"Pods that a kubelet that is gone cannot end count as gone", nil, unreachable},
		{"volumes are waited for", nil, volumes},
		{"volumes are waited for up to a limit", func(lm *infrav1.LibvirtMachine) { lm.Spec.Deletion.NodeVolumeDetachTimeoutSeconds = new(int32(1)) }, volumesStay},
		{"a guest that does not listen is destroyed after its grace", graceful(2), stubborn},
		{"a guest without grace is destroyed at once", graceful(0), graceless},
		{"a guest that never became a Node is destroyed at once", nil, neverJoined},
		{"a Node that is somebody else's is left alone", nil, foreignNode},
		{"it is abandoned on request, and removed before the next machine when its host returns", nil, abandoned},
		{"it is abandoned when its host has been away for too long", func(lm *infrav1.LibvirtMachine) { lm.Spec.Deletion.AbandonAfterSeconds = new(int32(2)) }, abandonedLate},
	}
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.leave(newLeaver(t, f, connector, fmt.Sprintf("m%d", i), row.change))
		})
	}
}

func within(seconds int32, more func(*infrav1.LibvirtMachineDeletionSpec)) func(*infrav1.LibvirtMachine) {
	return func(lm *infrav1.LibvirtMachine) {
		lm.Spec.Deletion.NodeDrainTimeoutSeconds = new(seconds)
		if more != nil {
			more(&lm.Spec.Deletion)
		}
	}
}

func graceful(seconds int32) func(*infrav1.LibvirtMachine) {
	return func(lm *infrav1.LibvirtMachine) { lm.Spec.Deletion.ShutdownGracePeriodSeconds = new(seconds) }
}

func evicted(l *leaver) {
	l.join(nil)
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "daemons"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "daemon"}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "daemon"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/image"}}},
		},
	}}
	l.create(set)
	daemon := l.pod("daemon", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	})
	static := l.pod("static", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })
	told := l.pod("told", func(p *corev1.Pod) { p.Labels[clusterv1.PodDrainLabel] = "skip" })
	plain, slow := l.pod("plain", nil), l.pod("slow", hold)

	l.delete()
	message := l.expect(infrav1.DrainingCondition, "True/DrainingNode")
	l.Expect(message).To(And(ContainSubstring(l.nodeName()), ContainSubstring("default/"+slow.Name)))
	l.Eventually(func() string { return conditions.GetMessage(l.machine(), infrav1.DrainingCondition) }, leaveBound, leaveTick).
		Should(HavePrefix("1 Pod left on Node"), "the Pod that nothing holds is gone")
	l.Expect(conditions.GetMessage(l.machine(), infrav1.MachineReadyCondition)).To(HavePrefix("1 Pod left on Node"))
	l.Expect(l.exists(plain)).To(BeFalse())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.nodeName()}}
	l.Expect(l.exists(node)).To(BeTrue())
	l.Expect(node.Spec.Unschedulable).To(BeTrue())
	l.expectUntouched()

	l.release(slow)
	l.expectGone()
	l.Expect(l.ended()).To(Equal([]string{"shutdown"}), "a guest that has shut down needs no destroying")
	l.Expect(l.nodeExists()).To(BeFalse())
	for _, pod := range []*corev1.Pod{daemon, static, told} {
		l.Expect(l.exists(pod)).To(BeTrue(), pod.Name)
		l.Expect(pod.DeletionTimestamp).To(BeNil(), pod.Name)
	}
	l.expectEvents("DrainingNode", "NodeDrained", "ShutdownRequested", "NodeDeleted", "CleanedUp")
}

func budgeted(l *leaver) {
	l.join(nil)
	pod := l.pod("guarded", nil)
	budget := l.budget(pod, 0)
	l.delete()
	l.Expect(l.expect(infrav1.DrainingCondition, "True/DrainingNode")).To(And(ContainSubstring("default/"+pod.Name), ContainSubstring("disruption budget")))
	l.Consistently(func() bool { return l.exists(pod) && pod.DeletionTimestamp == nil }, 3*time.Second, leaveTick).Should(BeTrue())
	l.expectUntouched()
	l.allow(budget, 1)
	l.expectGone()
	l.Expect(l.exists(pod)).To(BeFalse())
	l.Expect(l.nodeExists()).To(BeFalse())
}

func timedOut(l *leaver) {
	l.join(nil)
	pod := l.pod("guarded", nil)
	l.budget(pod, 0)
	l.delete()
	l.Expect(l.expectGone()).To(BeNumerically(">=", time.Second), "times of objects are whole seconds")
	l.Expect(l.exists(pod)).To(BeTrue(), "it was not evicted")
	l.Expect(l.nodeExists()).To(BeFalse())
	l.expectEvents("DrainingNode", "DrainTimedOut")
}

func waits(l *leaver) {
	l.join(nil)
	pod := l.pod("guarded", nil)
	l.budget(pod, 0)
	l.delete()
	l.Expect(l.expect(infrav1.DrainingCondition, "True/DrainTimedOut")).To(And(ContainSubstring("onDrainTimeout"), ContainSubstring(infrav1.SkipDrainAnnotation)))
	l.Consistently(func() bool { return l.exists(pod) && l.nodeExists() }, 3*time.Second, leaveTick).Should(BeTrue())
	l.expectUntouched()
	l.change(func(lm *infrav1.LibvirtMachine) { lm.Spec.Deletion.OnDrainTimeout = infrav1.DrainTimeoutForce })
	l.expectGone()
	l.Expect(l.exists(pod)).To(BeTrue(), "it was not evicted")
}

func annotatedMidway(l *leaver) {
	l.join(nil)
	l.budget(l.pod("guarded", nil), 0)
	l.delete()
	l.expect(infrav1.DrainingCondition, "True/DrainingNode")
	l.change(func(lm *infrav1.LibvirtMachine) { lm.Annotations = map[string]string{infrav1.SkipDrainAnnotation: ""} })
	l.expectGone()
	l.Expect(l.nodeExists()).To(BeFalse())
	l.expectEvents("DrainSkipped")
}

func (l *leaver) owner() *clusterv1.Machine {
	owner := &clusterv1.Machine{}
	l.Expect(l.c.Get(l.t.Context(), client.ObjectKey{Namespace: "default", Name: l.name}, owner)).To(Succeed())
	return owner
}

func excludedByMachine(l *leaver) {
	l.join(nil)
	pod := l.pod("plain", nil)
	owner := l.owner()
	owner.Annotations = map[string]string{clusterv1.ExcludeNodeDrainingAnnotation: ""}
	l.Expect(l.c.Update(l.t.Context(), owner)).To(Succeed())
	l.delete()
	l.expectGone()
	l.Expect(l.exists(pod)).To(BeTrue(), "it was not evicted")
	l.expectEvents("DrainSkipped")
}

func drainedAlready(l *leaver) {
	l.join(nil)
	l.budget(l.pod("guarded", nil), 0)
	owner := l.owner()
	v1beta1conditions.MarkTrue(owner, clusterv1.DrainingSucceededV1Beta1Condition)
	l.Expect(l.c.Status().Update(l.t.Context(), owner)).To(Succeed())
	l.delete()
	l.expectGone()
	l.expectEvents("DrainSkipped")
}

func unreachable(l *leaver) {
	l.join(func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown"}}
	})
	pod := l.pod("stuck", hold)
	l.delete()
	l.expectGone()
	l.Expect(l.nodeExists()).To(BeFalse())
	l.release(pod)
}

func (l *leaver) attach() *storagev1.VolumeAttachment {
	attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "attachment-" + l.name}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "csi.example.com", NodeName: l.nodeName(), Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("data-" + l.name)},
	}}
	l.setStatus(attachment, func() { attachment.Status.Attached = true })
	return attachment
}

func volumes(l *leaver) {
	l.join(nil)
	pod := l.pod("plain", nil)
	attachment := l.attach()
	l.delete()
	l.Expect(l.expect(infrav1.DrainingCondition, "True/WaitingForVolumeDetach")).To(ContainSubstring("1 attached: PersistentVolume data-" + l.name))
	l.Expect(l.exists(pod)).To(BeFalse())
	l.expectUntouched()
	l.Expect(l.c.Delete(l.t.Context(), attachment)).To(Succeed())
	l.expectGone()
}

func volumesStay(l *leaver) {
	l.join(nil)
	l.attach()
	l.delete()
	l.expectGone()
	l.expectEvents("VolumeDetachTimedOut")
	l.Expect(l.nodeExists()).To(BeFalse())
}

func stubborn(l *leaver) {
	l.host.stubborn = true
	l.join(nil)
	l.delete()
	l.Eventually(func() string { return conditions.GetMessage(l.machine(), infrav1.MachineReadyCondition) }, leaveBound, leaveTick).
		Should(HavePrefix("waiting for the guest to shut down"))
	l.Expect(l.nodeExists()).To(BeTrue())
	l.Expect(l.expectGone()).To(BeNumerically(">=", time.Second), "times of objects are whole seconds")
	l.Expect(l.ended()).To(Equal([]string{"shutdown", "destroy"}))
}

func graceless(l *leaver) {
	l.join(nil)
	l.delete()
	l.expectGone()
	l.Expect(l.ended()).To(Equal([]string{"destroy"}))
}

func neverJoined(l *leaver) {
	l.delete()
	l.expectGone()
	l.Expect(l.ended()).To(Equal([]string{"destroy"}))
}

func foreignNode(l *leaver) {
	l.join(func(n *corev1.Node) { n.Spec.ProviderID = "other://somebody/else" })
	pod := l.pod("plain", nil)
	l.delete()
	l.expectGone()
	l.Expect(l.exists(pod)).To(BeTrue())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.nodeName()}}
	l.Expect(l.exists(node)).To(BeTrue())
	l.Expect(node.Spec.Unschedulable).To(BeFalse())
}
