// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// TestDecide has a strategy of one retry and ten minutes, and an object that is 20 minutes old.
func TestDecide(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(-d))) }
	healthy := func(at *metav1.Time) []metav1.Condition {
		return []metav1.Condition{{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionTrue, LastTransitionTime: *at}}
	}
	type given struct {
		attempts      int32
		last          *metav1.Time
		request       *infrav1.RestartRequestStatus
		conditions    []metav1.Condition
		unprovisioned bool
		missing       bool
		noRetry       bool
	}
	for _, row := range []struct {
		name    string
		given   given
		want    action
		reason  string
		message string
		after   time.Duration
	}{
		{"at first the domain is restarted", given{}, attempt, "", "", 0},
		{
			"a request that nobody has seen yet is waited for", given{attempts: 1, last: ago(time.Minute)},
			wait, infrav1.RestartingDomainReason, "domain n is asked to be started again (PowerCycle), in attempt 1 of 2 until 03:13:05Z", 9 * time.Minute,
		},
		{
			"what stands in its way is said",
			given{attempts: 1, last: ago(time.Minute), request: &infrav1.RestartRequestStatus{Request: "PowerCycle/u-1", Message: "the host does not answer"}},
			wait, infrav1.RestartingDomainReason, "03:13:05Z; the host does not answer", 9 * time.Minute,
		},
		{
			"an earlier request says nothing",
			given{attempts: 2, last: ago(time.Minute), request: &infrav1.RestartRequestStatus{Request: "PowerCycle/u-1", CompletionTime: ago(9 * time.Minute), Message: "words"}},
			wait, infrav1.RestartingDomainReason, "in attempt 2 of 2 until 03:13:05Z", 9 * time.Minute,
		},
		{
			"the guest has its time from the start of the domain",
			given{attempts: 1, last: ago(15 * time.Minute), request: &infrav1.RestartRequestStatus{Request: "PowerCycle/u-1", CompletionTime: ago(9 * time.Minute)}},
			wait, infrav1.WaitingForHealthReason, "domain n was started again in attempt 1 of 2; the MachineHealthCheck has until 03:05:05Z", time.Minute,
		},
		{
			"when that is over, it is tried again",
			given{attempts: 1, last: ago(15 * time.Minute), request: &infrav1.RestartRequestStatus{Request: "PowerCycle/u-1", CompletionTime: ago(10 * time.Minute)}},
			attempt, "", "", 0,
		},
		{"a host that does not answer is tried again as well", given{attempts: 1, last: ago(10 * time.Minute)}, attempt, "", "", 0},
		{"after the last attempt the Machine is given back", given{attempts: 2, last: ago(10 * time.Minute)}, giveBack, "", "still unhealthy 10m0s after attempt 2 of 2", 0},
		{"without retries that is the first", given{attempts: 1, last: ago(10 * time.Minute), noRetry: true}, giveBack, "", "attempt 1 of 1", 0},
		{"a machine that never ran is given back", given{unprovisioned: true}, giveBack, "", "no domain that has run", 0},
		{"a machine without infrastructure is given back", given{missing: true}, giveBack, "", "no domain that has run", 0},
		{
			"a machine that was found healthy is left alone", given{attempts: 2, last: ago(time.Hour), conditions: healthy(ago(time.Minute))},
			wait, infrav1.WaitingForHealthReason, "has found the Machine healthy", 0,
		},
		{"an old verdict is none", given{conditions: healthy(ago(time.Hour))}, attempt, "", "", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			rem := &infrav1.LibvirtRemediation{
				ObjectMeta: metav1.ObjectMeta{UID: "u", CreationTimestamp: *ago(20 * time.Minute)},
				Spec:       infrav1.LibvirtRemediationSpec{Strategy: infrav1.RemediationStrategy{Type: infrav1.RestartTypePowerCycle, TimeoutSeconds: 600}},
				Status:     infrav1.LibvirtRemediationStatus{Attempts: row.given.attempts, LastAttemptTime: row.given.last},
			}
			if row.given.noRetry {
				rem.Spec.Strategy.RetryLimit = new(int32(0))
			}
			lm := &infrav1.LibvirtMachine{Status: infrav1.LibvirtMachineStatus{NodeName: "n", RestartRequest: row.given.request}}
			lm.Status.Initialization.Provisioned = new(!row.given.unprovisioned)
			if row.given.missing {
				lm = nil
			}
			d := decide(rem, &clusterv1.Machine{Status: clusterv1.MachineStatus{Conditions: row.given.conditions}}, lm, now)
			g.Expect(d.action).To(Equal(row.want))
			g.Expect(d.reason).To(Equal(row.reason))
			g.Expect(d.message).To(ContainSubstring(row.message))
			g.Expect(d.after).To(Equal(row.after))
		})
	}
}

func TestWhoReplacesMachines(t *testing.T) {
	for _, row := range []struct {
		apiVersion, kind string
		want             bool
	}{
		{"cluster.x-k8s.io/v1beta2", "MachineSet", true},
		{"controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane", true},
		{"5spot.finos.org/v1alpha1", "ScheduledMachine", false},
		{"cluster.x-k8s.io/v1beta2", "Cluster", false},
		{"", "", false},
	} {
		m := &clusterv1.Machine{}
		if row.kind != "" {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: row.apiVersion, Kind: row.kind, Controller: new(true)}}
		}
		NewWithT(t).Expect(replacesMachines(m)).To(Equal(row.want), "%s %s", row.apiVersion, row.kind)
	}
}
