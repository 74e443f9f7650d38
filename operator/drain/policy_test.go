// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

var begin = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func owner(change func(*clusterv1.Machine)) *clusterv1.Machine {
	m := &clusterv1.Machine{}
	change(m)
	return m
}

func drained(status corev1.ConditionStatus) *clusterv1.Machine {
	return owner(func(m *clusterv1.Machine) {
		v1beta1conditions.Set(m, &clusterv1.Condition{Type: clusterv1.DrainingSucceededV1Beta1Condition, Status: status}) //nolint:staticcheck // Only the old condition says so.
	})
}

func TestThePolicyIsThatOfTheLibvirtMachineThenThatOfItsMachineThenTheDefault(t *testing.T) {
	limits := func(drain, volumes int32) *clusterv1.Machine {
		return owner(func(m *clusterv1.Machine) {
			m.Spec.Deletion.NodeDrainTimeoutSeconds, m.Spec.Deletion.NodeVolumeDetachTimeoutSeconds = &drain, &volumes
		})
	}
	annotated := func(key string) infrav1.LibvirtMachine {
		return infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: ""}}}
	}
	plain := Policy{DrainTimeout: 10 * time.Minute, VolumeTimeout: 2 * time.Minute}
	for _, row := range []struct {
		name  string
		lm    infrav1.LibvirtMachine
		owner *clusterv1.Machine
		want  func(*Policy)
	}{
		{"nothing is said, and the Machine is gone", infrav1.LibvirtMachine{}, nil, func(*Policy) {}},
		{"the Machine sets limits", infrav1.LibvirtMachine{}, limits(30, 40), func(p *Policy) { p.DrainTimeout, p.VolumeTimeout = 30*time.Second, 40*time.Second }},
		{"the Machine sets no limit with 0", infrav1.LibvirtMachine{}, limits(0, 0), func(p *Policy) { p.DrainTimeout, p.VolumeTimeout = 0, 0 }},
		{"the LibvirtMachine sets others", infrav1.LibvirtMachine{Spec: infrav1.LibvirtMachineSpec{Deletion: infrav1.LibvirtMachineDeletionSpec{
			NodeDrainTimeoutSeconds: new(int32(1)), NodeVolumeDetachTimeoutSeconds: new(int32(0)), OnDrainTimeout: infrav1.DrainTimeoutWait,
		}}}, limits(30, 40), func(p *Policy) { p.DrainTimeout, p.VolumeTimeout, p.Wait = time.Second, 0, true }},
		{"an annotation of the LibvirtMachine forbids to drain", annotated(infrav1.SkipDrainAnnotation), nil,
			func(p *Policy) { p.Skip = "the annotation infrastructure.cluster.x-k8s.io/skip-drain forbids to drain" }},
		{"an annotation of the Machine forbids to drain", infrav1.LibvirtMachine{},
			owner(func(m *clusterv1.Machine) {
				m.Annotations = map[string]string{clusterv1.ExcludeNodeDrainingAnnotation: ""}
			}),
			func(p *Policy) {
				p.Skip = "the annotation machine.cluster.x-k8s.io/exclude-node-draining forbids to drain"
			}},
		{"an annotation forbids to wait for volumes", annotated(clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation), nil, func(p *Policy) { p.SkipVolumes = true }},
		{"Cluster API has drained", infrav1.LibvirtMachine{}, drained(corev1.ConditionTrue), func(p *Policy) { p.Skip = "Cluster API has drained the Node" }},
		{"Cluster API has begun to drain and given up", infrav1.LibvirtMachine{}, drained(corev1.ConditionFalse), func(*Policy) {}},
		{"Cluster API has begun to drain", infrav1.LibvirtMachine{},
			owner(func(m *clusterv1.Machine) {
				m.Status.Deletion = &clusterv1.MachineDeletionStatus{NodeDrainStartTime: metav1.NewTime(begin)}
			}), func(p *Policy) { p.StartedAt = begin }},
	} {
		t.Run(row.name, func(t *testing.T) {
			want := plain
			row.want(&want)
			NewWithT(t).Expect(PolicyOf(&row.lm, row.owner)).To(Equal(want))
		})
	}
}

func TestWhatFollowsAPass(t *testing.T) {
	two := Left{Pods: 2, Message: "a, b"}
	for _, row := range []struct {
		name    string
		policy  Policy
		left    Left
		after   time.Duration
		over    bool
		reason  string
		message string
		due     time.Time
	}{
		{"nothing is left", Policy{DrainTimeout: time.Minute}, Left{}, 0, true, infrav1.NodeDrainedReason, "no Pod that can be evicted is left on Node n", time.Time{}},
		{"nothing is left, late", Policy{DrainTimeout: time.Minute}, Left{}, time.Hour, true, infrav1.NodeDrainedReason, "no Pod that can be evicted is left on Node n", time.Time{}},
		{"Pods are left", Policy{DrainTimeout: time.Minute}, two, time.Second, false, infrav1.DrainingNodeReason,
			"2 Pods left on Node n; draining since 2026-08-01T12:00:00Z, to be done by 2026-08-01T12:01:00Z: a, b", begin.Add(time.Minute)},
		{"Pods are left, and there is no limit", Policy{}, Left{Pods: 1, Message: "a"}, time.Hour, false, infrav1.DrainingNodeReason,
			"1 Pod left on Node n; draining since 2026-08-01T12:00:00Z: a", time.Time{}},
		{"the pass failed", Policy{}, Left{Unknown: true, Message: "no answer"}, time.Hour, false, infrav1.DrainingNodeReason,
			"an unknown number of Pods left on Node n; draining since 2026-08-01T12:00:00Z: no answer", time.Time{}},
		{"Pods are left when the time is over", Policy{DrainTimeout: time.Minute}, two, time.Minute, true, infrav1.DrainTimedOutReason,
			"2 Pods left on Node n after 1m0s end with it: a, b", time.Time{}},
		{"the time is over, and the policy is to wait", Policy{DrainTimeout: time.Minute, Wait: true}, two, time.Minute, false, infrav1.DrainTimedOutReason,
			"2 Pods left on Node n after 1m0s, and spec.deletion.onDrainTimeout is Wait; set it to Force, or the annotation " +
				"infrastructure.cluster.x-k8s.io/skip-drain, to go on: a, b", time.Time{}},
		{"Cluster API's time counts", Policy{DrainTimeout: time.Minute, StartedAt: begin.Add(-time.Minute)}, two, 0, true, infrav1.DrainTimedOutReason,
			"2 Pods left on Node n after 1m0s end with it: a, b", time.Time{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			want := Verdict{Over: row.over, Reason: row.reason, Message: row.message, Due: row.due}
			NewWithT(t).Expect(row.policy.AfterPass(row.left, "n", begin, begin.Add(row.after))).To(Equal(want))
		})
	}
}

func TestWhatFollowsALookAtVolumes(t *testing.T) {
	limited := Policy{VolumeTimeout: time.Minute}
	for _, row := range []struct {
		name    string
		policy  Policy
		volumes string
		after   time.Duration
		want    Verdict
	}{
		{"none is attached", limited, "", 0, Verdict{Over: true}},
		{"one is attached", limited, "a", time.Second,
			Verdict{Reason: infrav1.WaitingForVolumeDetachReason, Message: "waiting for the volumes of Node n: a", Due: begin.Add(time.Minute)}},
		{"one is attached, and there is no limit", Policy{}, "a", time.Hour, Verdict{Reason: infrav1.WaitingForVolumeDetachReason, Message: "waiting for the volumes of Node n: a"}},
		{"one is attached and is not waited for", Policy{SkipVolumes: true}, "a", 0, Verdict{Over: true}},
		{"one is attached when the time is over", limited, "a", time.Minute,
			Verdict{Over: true, Reason: infrav1.VolumeDetachTimedOutReason, Message: "volumes of Node n were not detached within 1m0s: a"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			NewWithT(t).Expect(row.policy.AfterVolumes(row.volumes, "n", begin, begin.Add(row.after))).To(Equal(row.want))
		})
	}
}
