// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/virsh"
)

func TestPlanRestart(t *testing.T) {
	destroy, start := []StepKind{StepDestroyDomain}, []StepKind{StepStartDomain}
	const ended, pending = true, false
	type want struct {
		steps   []StepKind
		ended   bool
		refused string
		blocked string
	}
	for _, row := range []struct {
		name   string
		how    infrav1.RestartType
		ended  bool
		state  virsh.State
		reason string
		change func(*virsh.Observation)
		want   want
	}{
		{"a power cycle ends a guest that runs", "PowerCycle", pending, virsh.StateRunning, "booted", nil, want{steps: destroy}},
		{"a power cycle records that the domain has ended", "PowerCycle", pending, virsh.StateShutOff, "destroyed", nil, want{ended: true}},
		{"a power cycle starts what has ended", "PowerCycle", ended, virsh.StateShutOff, "destroyed", nil, want{steps: start}},
		{"a power cycle is done when the domain runs again", "PowerCycle", ended, virsh.StateRunning, "booted", nil, want{}},
		{"a power cycle ends a guest that a watchdog has paused", "PowerCycle", pending, virsh.StatePaused, "watchdog", nil, want{steps: destroy}},
		{"a power cycle ends a guest that sleeps", "PowerCycle", pending, virsh.StatePMSuspended, "disk", nil, want{steps: destroy}},
		{"a power cycle ends a domain that was kept after its crash", "PowerCycle", pending, virsh.StateCrashed, "panicked", nil, want{steps: destroy}},
		{"a power cycle leaves alone what somebody has suspended", "PowerCycle", pending, virsh.StatePaused, "user", nil, want{blocked: infrav1.DomainPausedReason}},
		{"a power cycle does not mend a disk", "PowerCycle", pending, virsh.StatePaused, virsh.ReasonIOError, nil, want{blocked: infrav1.DomainIOErrorReason}},
		{"a power cycle has a guest resumed that ran out of storage", "PowerCycle", pending, virsh.StatePaused, virsh.ReasonIOError, full, want{steps: []StepKind{StepRefreshPool}}},
		{"a power cycle does not end a domain that would be gone", "PowerCycle", pending, virsh.StateRunning, "booted",
			func(obs *virsh.Observation) { obs.Domain.Transient = true }, want{refused: "is not defined on the host any more"}},
		{"a power cycle does not end a domain whose disk is gone", "PowerCycle", pending, virsh.StateRunning, "booted",
			func(obs *virsh.Observation) { clear(obs.Volumes) }, want{refused: "is gone from storage pool default"}},
		{"a power cycle says that a stuck domain's disk is gone", "PowerCycle", pending, virsh.StatePMSuspended, "disk",
			func(obs *virsh.Observation) { clear(obs.Volumes) }, want{blocked: infrav1.DomainPausedReason}},
		{"a restart leaves a guest alone that runs", "Restart", pending, virsh.StateRunning, "booted", nil, want{}},
		{"a restart starts what has ended", "Restart", pending, virsh.StateShutOff, "crashed", nil, want{steps: start}},
		{"a restart starts the pool first", "Restart", pending, virsh.StateShutOff, "unknown",
			func(obs *virsh.Observation) { obs.Pools["default"] = virsh.PoolInfo{} }, want{steps: []StepKind{StepStartPool, StepStartDomain}}},
		{"a restart ends what was kept after its crash", "Restart", pending, virsh.StateCrashed, "panicked", nil, want{steps: []StepKind{StepDestroyDomain, StepStartDomain}}},
		{"a restart leaves a sleeping guest alone", "Restart", pending, virsh.StatePMSuspended, "disk", nil, want{blocked: infrav1.DomainPausedReason}},
		{"nothing is started whose disk is gone", "PowerCycle", ended, virsh.StateShutOff, "destroyed",
			func(obs *virsh.Observation) { clear(obs.Volumes) }, want{blocked: infrav1.DomainNotRunningReason}},
		{"nothing is started that was undefined", "PowerCycle", ended, "", "",
			func(obs *virsh.Observation) { obs.Domain = nil }, want{blocked: infrav1.DomainMissingReason}},
		{"nothing is done to what is not ours", "PowerCycle", pending, virsh.StateRunning, "booted",
			func(obs *virsh.Observation) { obs.Domain.XML = foreignDomain }, want{blocked: infrav1.DomainAlreadyExistsReason}},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			d := desired()
			d.Provisioned, d.Restart = true, &Restart{Type: row.how, Ended: row.ended}
			obs := fallen(g, d, row.state, row.reason)
			if row.change != nil {
				row.change(&obs)
			}
			p, err := PlanProvisioning(d, obs, Progress{})
			g.Expect(err).NotTo(HaveOccurred())
			var kinds []StepKind
			for _, step := range p.Steps {
				kinds = append(kinds, step.Kind)
			}
			g.Expect(kinds).To(Equal(row.want.steps))
			g.Expect(p.Ended).To(Equal(row.want.ended))
			g.Expect(p.Refused).To(ContainSubstring(row.want.refused))
			isRefused := p.Refused != ""
			g.Expect(isRefused).To(Equal(row.want.refused != ""), p.Refused)
			if row.want.blocked == "" {
				g.Expect(p.Blocked).To(BeNil())
			} else {
				g.Expect(p.Blocked).To(HaveValue(HaveField("Reason", row.want.blocked)))
			}
		})
	}
}

func TestParseRestartRequest(t *testing.T) {
	for value, want := range map[string]bool{
		"PowerCycle/1": true, "Restart/a.b-C9": true, "PowerCycle/" + strings.Repeat("x", 63): true,
		"": false, "PowerCycle": false, "PowerCycle/": false, "Reboot/1": false, "PowerCycle/a b": false, "PowerCycle/a/b": false, "PowerCycle/" + strings.Repeat("x", 64): false,
	} {
		_, ok := infrav1.ParseRestartRequest(value)
		NewWithT(t).Expect(ok).To(Equal(want), value)
	}
}

// request asks for a restart, as the remediation does. An empty value takes that back.
func (b *bench) request(value string) {
	b.t.Helper()
	lm := &infrav1.LibvirtMachine{}
	b.Expect(b.r.Client.Get(b.t.Context(), key, lm)).To(Succeed())
	lm.Annotations = nil
	if value != "" {
		lm.Annotations = map[string]string{infrav1.RestartRequestAnnotation: value}
	}
	b.Expect(b.r.Client.Update(b.t.Context(), lm)).To(Succeed())
	b.connector.host.steps = nil
}

func TestARequestIsServedOnce(t *testing.T) {
	b := newBench(t, nil)
	b.request("PowerCycle/early")
	lm, _ := b.reconcile()
	b.Expect(b.connector.host.steps).NotTo(ContainElement(HavePrefix("destroy")))
	b.Expect(lm.Status.RestartRequest.Completed("PowerCycle/early")).To(BeTrue(), "the first start of a machine serves it")

	b.request("PowerCycle/1")
	b.events()
	lm, _ = b.reconcile()
	b.Expect(b.connector.host.steps).To(Equal([]string{"destroy ns-prod-m", "start ns-prod-m"}))
	b.Expect(lm.Status.RestartRequest.Completed("PowerCycle/1")).To(BeTrue())
	b.Expect(lm.Status.RestartRequest.Message).To(BeEmpty())
	b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue())
	b.Expect(lm.Status.Recovery).To(BeNil(), "it is no attempt of the recovery policy")
	b.Expect(b.events()).To(ContainSubstring("Normal RestartCompleted domain ns-prod-m runs as request PowerCycle/1 asked"))
	b.reconcile()
	b.Expect(b.connector.host.steps).To(HaveLen(2))

	b.request("PowerCycle/2")
	b.reconcile()
	b.Expect(b.connector.host.steps).To(HaveLen(2), "another request is another cycle")

	b.request("Restart/3")
	lm, _ = b.reconcile()
	b.Expect(b.connector.host.steps).To(BeEmpty(), "it runs")
	b.Expect(lm.Status.RestartRequest.Completed("Restart/3")).To(BeTrue())
	b.stop()
	b.request("Restart/4")
	b.reconcile()
	b.Expect(b.connector.host.steps).To(Equal([]string{"start ns-prod-m"}))
}

// TestAPowerCycleEndsOneRunWhereverItIsInterrupted ends the operator at each of its points.
func TestAPowerCycleEndsOneRunWhereverItIsInterrupted(t *testing.T) {
	var points []FailPoint
	for _, what := range []string{string(StepDestroyDomain), writeEnded, string(StepStartDomain), writeStatus} {
		points = append(points, before(what), after(what))
	}
	for _, point := range points {
		t.Run(string(point), func(t *testing.T) {
			b := newBench(t, nil)
			b.reconcile()
			b.request("PowerCycle/1")
			b.r.FailPoint = func(p FailPoint) {
				if p == point {
					b.r.FailPoint = nil
					panic(p)
				}
			}
			b.Expect(func() { _, _ = b.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}) }).To(PanicWith(point))
			lm, _ := b.reconcile()
			b.Expect(b.connector.host.steps).To(Equal([]string{"destroy ns-prod-m", "start ns-prod-m"}))
			b.Expect(lm.Status.RestartRequest.Completed("PowerCycle/1")).To(BeTrue())
			b.Expect(FailPoints()).To(ContainElement(point))
		})
	}
}

// TestARequestIsServedOnceWithAnOldCache: the domain's own events wake the reconciler before the cache has the new status.
func TestARequestIsServedOnceWithAnOldCache(t *testing.T) {
	b := newBench(t, nil)
	b.reconcile()
	b.request("PowerCycle/1")
	old := &infrav1.LibvirtMachine{}
	b.Expect(b.r.Client.Get(t.Context(), key, old)).To(Succeed())
	lm, _ := b.reconcile()
	b.Expect(lm.Status.RestartRequest.Completed("PowerCycle/1")).To(BeTrue())

	current, ok := b.r.Client.(client.WithWatch)
	b.Expect(ok).To(BeTrue())
	b.r.Client = interceptor.NewClient(current, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if lm, ok := o.(*infrav1.LibvirtMachine); ok {
				old.DeepCopyInto(lm)
				return nil
			}
			return c.Get(ctx, key, o, options...)
		},
	})
	_, _ = b.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}) // Its writes may meet a conflict.
	b.Expect(b.connector.host.steps).To(Equal([]string{"destroy ns-prod-m", "start ns-prod-m"}))
}

func TestARequestThatWasTakenBackLeavesNoDomainDown(t *testing.T) {
	b := newBench(t, nil)
	b.reconcile()
	b.request("PowerCycle/1")
	b.connector.host.failAt = 1 // The start.
	lm, result := b.reconcile()
	b.Expect(conditions.IsFalse(lm, infrav1.MachineReadyCondition)).To(BeTrue())
	b.Expect(lm.Status.RestartRequest.Pending()).To(BeTrue())
	b.Expect(lm.Status.RestartRequest.Message).To(ContainSubstring("injected"))
	b.Expect(b.events()).To(ContainSubstring("Warning RestartFailed request PowerCycle/1 is not served yet"))
	b.Expect(result.RequeueAfter).To(BeNumerically(">", 0))
	lm.Annotations = nil
	b.Expect(b.r.Client.Update(t.Context(), lm)).To(Succeed())
	lm, _ = b.reconcile()
	b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue())
	b.Expect(slices.Contains(b.connector.host.steps, "start ns-prod-m")).To(BeTrue())

	b.request("PowerCycle/2")
	b.connector.host.failAt = 0 // The end.
	b.reconcile()
	b.request("")
	b.reconcile()
	b.Expect(b.connector.host.steps).To(BeEmpty(), "nothing had been done yet")
}

func TestARequestThatCannotBeServedSaysWhy(t *testing.T) {
	b := newBench(t, nil)
	b.reconcile()
	for _, row := range []struct {
		request string
		change  func(*fakeDomain)
		want    string
		ready   metav1.ConditionStatus
	}{
		{"Reboot/1", nil, "must be PowerCycle/ID or Restart/ID", metav1.ConditionTrue},
		{strings.Repeat("x", 1000), nil, "must be PowerCycle/ID or Restart/ID", metav1.ConditionTrue},
		{"PowerCycle/2", func(d *fakeDomain) { d.other = &virsh.DomainInfo{State: virsh.StateRunning, Transient: true} }, "not defined on the host any more", metav1.ConditionTrue},
		{"PowerCycle/3", func(d *fakeDomain) { d.other = &virsh.DomainInfo{State: virsh.StatePaused, Reason: "user"} }, "virsh resume ns-prod-m", metav1.ConditionFalse},
	} {
		fake := b.connector.host.domains["ns-prod-m"]
		fake.other = nil
		if row.change != nil {
			row.change(fake)
		}
		b.request(row.request)
		lm, _ := b.reconcile()
		b.Expect(lm.Status.RestartRequest.Message).To(ContainSubstring(row.want))
		b.Expect(lm.Status.RestartRequest.Completed(lm.Status.RestartRequest.Request)).To(BeFalse())
		b.Expect(conditions.Get(lm, infrav1.MachineReadyCondition).Status).To(Equal(row.ready))
		b.Expect(b.connector.host.steps).To(BeEmpty())
	}
}
