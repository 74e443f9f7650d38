// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostsetup

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(-d))) }

// ended is a run that ended a minute ago.
func ended(playbook ansible.Playbook, mode infrav1.BootstrapMode, phase ansible.Phase) *infrav1.BootstrapRun {
	return &infrav1.BootstrapRun{
		Key: "k", Playbook: string(playbook), Mode: mode, Phase: infrav1.RunPhase(phase), DesiredStateHash: "want", InputHash: "in", Attempt: 1, FinishedAt: ago(time.Minute),
	}
}

func active(playbook ansible.Playbook, phase infrav1.RunPhase) *infrav1.BootstrapRun {
	return &infrav1.BootstrapRun{Key: "k", Playbook: string(playbook), Mode: infrav1.BootstrapApply, Phase: phase, DesiredStateHash: "want", InputHash: "in", Attempt: 1}
}

// decide is what the reconciler does with a view.
func decide(v View) Action {
	if action, decided := Current(v); decided {
		return action
	}
	return Next(v)
}

type change func(*View, *infrav1.HostBootstrap, *infrav1.HostBootstrapStatus)

func applied(_ *View, _ *infrav1.HostBootstrap, st *infrav1.HostBootstrapStatus) {
	st.AppliedStateHash, st.AppliedAt, st.CheckedAt, st.TouchedAt = "want", ago(2*time.Hour), ago(2*time.Hour), ago(3*time.Hour)
	st.Run = ended(ansible.OnboardHost, infrav1.BootstrapApply, ansible.Succeeded)
}

func interval(_ *View, b *infrav1.HostBootstrap, _ *infrav1.HostBootstrapStatus) {
	b.ReapplyInterval = &metav1.Duration{Duration: time.Hour}
}

func deletedWith(offboard bool) change {
	return func(v *View, b *infrav1.HostBootstrap, _ *infrav1.HostBootstrapStatus) {
		v.Host.DeletionTimestamp, b.OffboardOnDelete = ago(time.Second), offboard
	}
}

func lastRunIs(run *infrav1.BootstrapRun) change {
	return func(_ *View, _ *infrav1.HostBootstrap, st *infrav1.HostBootstrapStatus) { st.Run = run }
}

func TestWhatIsDoneNext(t *testing.T) {
	begin := func(playbook ansible.Playbook, check bool) Action {
		return Action{Step: Begin, Playbook: playbook, Check: check}
	}
	apply, check, offboard := begin(ansible.OnboardHost, false), begin(ansible.OnboardHost, true), begin(ansible.OffboardHost, false)
	checkMode := func(_ *View, b *infrav1.HostBootstrap, _ *infrav1.HostBootstrapStatus) {
		b.Mode = infrav1.BootstrapCheck
	}
	repair := func(_ *View, b *infrav1.HostBootstrap, _ *infrav1.HostBootstrapStatus) {
		b.DriftPolicy = infrav1.DriftRepair
	}
	inUse := func(v *View, _ *infrav1.HostBootstrap, _ *infrav1.HostBootstrapStatus) { v.InUse = true }
	drifted := ended(ansible.OnboardHost, infrav1.BootstrapCheck, ansible.Succeeded)
	drifted.Changed = 2
	failed := ended(ansible.OnboardHost, infrav1.BootstrapApply, ansible.Failed)
	justFailed := failed.DeepCopy()
	justFailed.FinishedAt = ago(time.Second)
	often := failed.DeepCopy()
	often.Attempt = 30
	otherInputs := often.DeepCopy()
	otherInputs.InputHash = "other"
	otherState := often.DeepCopy()
	otherState.DesiredStateHash = "other"
	for _, row := range []struct {
		name    string
		changes []change
		want    Action
	}{
		{"a new host is set up", nil, apply},
		{"a new host in mode check is compared", []change{checkMode}, check},
		{"a recorded intent is submitted", []change{lastRunIs(active(ansible.OnboardHost, infrav1.RunSubmitting))}, Action{Step: Submit}},
		{"an intent that is no longer wanted is canceled", []change{lastRunIs(active(ansible.OnboardHost, infrav1.RunSubmitting)), checkMode}, Action{Step: Cancel}},
		{"a run is followed", []change{lastRunIs(active(ansible.OnboardHost, "Running"))}, Action{Step: Follow}},
		{"a run is followed, also when something else is wanted by now", []change{lastRunIs(active(ansible.OnboardHost, "Running")), checkMode}, Action{Step: Follow}},
		{"a run that failed just now is not begun again", []change{lastRunIs(justFailed)}, Action{After: 4 * time.Second}},
		{"a run that failed is begun again", []change{lastRunIs(failed)}, apply},
		{"a run that failed often waits long, and looks for changed Secrets", []change{lastRunIs(often)}, Action{After: inputPoll}},
		{"a changed Secret ends the wait", []change{lastRunIs(otherInputs)}, apply},
		{"a changed spec ends the wait", []change{lastRunIs(otherState)}, apply},
		{"a lost run is begun again", []change{lastRunIs(ended(ansible.OnboardHost, infrav1.BootstrapApply, ansible.Lost))}, apply},
		{"a host that is set up is left alone", []change{applied}, Action{}},
		{"a host that is set up for something else is set up again", []change{applied, func(v *View, _ *infrav1.HostBootstrap, _ *infrav1.HostBootstrapStatus) {
			v.Desired = "new"
		}}, apply},
		{"a host is compared when its interval is over", []change{applied, interval}, check},
		{"a host is compared while machines use it", []change{applied, interval, inUse}, check},
		// Of the fifth by which intervals differ, this UID gets 235 thousandths.
		{"a host is not compared before", []change{applied, interval, func(_ *View, _ *infrav1.HostBootstrap, st *infrav1.HostBootstrapStatus) {
			st.CheckedAt = ago(time.Minute)
		}}, Action{After: 59*time.Minute + 12*time.Minute*235/1000}},
		{"drift is reported", []change{applied, lastRunIs(drifted)}, Action{}},
		{"drift is repaired where that is asked for", []change{applied, repair, lastRunIs(drifted)}, apply},
		{"drift from another state is not repaired", []change{applied, repair, lastRunIs(drifted), func(v *View, _ *infrav1.HostBootstrap, st *infrav1.HostBootstrapStatus) {
			v.Desired, st.AppliedStateHash = "new", "new"
		}}, Action{}},
		{"a repair that failed is begun again", []change{applied, lastRunIs(failed)}, apply},
		{"a check that failed is begun again", []change{applied, interval, lastRunIs(ended(ansible.OnboardHost, infrav1.BootstrapCheck, ansible.Failed))}, check},
		{"a check that failed is not begun again where checks are off", []change{applied, lastRunIs(ended(ansible.OnboardHost, infrav1.BootstrapCheck, ansible.Failed))}, Action{}},
		{"a check is asked for", []change{applied, func(v *View, _ *infrav1.HostBootstrap, _ *infrav1.HostBootstrapStatus) {
			v.Host.Annotations = map[string]string{infrav1.CheckNowAnnotation: "1"}
		}}, check},
		{"a check that was asked for is carried out once", []change{applied, func(v *View, _ *infrav1.HostBootstrap, st *infrav1.HostBootstrapStatus) {
			v.Host.Annotations, st.CheckRequest = map[string]string{infrav1.CheckNowAnnotation: "1"}, "1"
		}}, Action{}},
		{"without spec.bootstrap, a run is ended", []change{lastRunIs(active(ansible.OnboardHost, "Running")), without}, Action{Step: Cancel}},
		{"without spec.bootstrap, nothing stays", []change{applied, without}, Action{Step: Release}},
		{"a deleted host goes", []change{applied, deletedWith(false)}, Action{Step: Release}},
		{"a deleted host is off-boarded first", []change{applied, deletedWith(true)}, offboard},
		{"a deleted host that no run has touched goes", []change{deletedWith(true)}, Action{Step: Release}},
		{"a deleted host goes when it is off-boarded", []change{applied, deletedWith(true), lastRunIs(ended(ansible.OffboardHost, infrav1.BootstrapApply, ansible.Succeeded))},
			Action{Step: Release}},
		{"off-boarding is begun again", []change{applied, deletedWith(true), lastRunIs(ended(ansible.OffboardHost, infrav1.BootstrapApply, ansible.Lost))}, offboard},
		{"off-boarding is followed", []change{applied, deletedWith(true), lastRunIs(active(ansible.OffboardHost, "Running"))}, Action{Step: Follow}},
		{"off-boarding that is no longer wanted is ended", []change{applied, deletedWith(false), lastRunIs(active(ansible.OffboardHost, "Running"))}, Action{Step: Cancel}},
		{"another run on a deleted host is ended", []change{applied, deletedWith(true), lastRunIs(active(ansible.OnboardHost, "Running"))}, Action{Step: Cancel}},
		{"a deleted host with machines is left alone", []change{applied, deletedWith(true), inUse}, Action{}},
		{"a run on a deleted host with machines is followed", []change{deletedWith(true), inUse, lastRunIs(active(ansible.OnboardHost, "Running"))}, Action{Step: Follow}},
	} {
		t.Run(row.name, func(t *testing.T) {
			lh := &infrav1.LibvirtHost{}
			lh.UID = "u1"
			lh.Spec.Bootstrap = &infrav1.HostBootstrap{Mode: infrav1.BootstrapApply, DriftPolicy: infrav1.DriftReport}
			lh.Status.Bootstrap = &infrav1.HostBootstrapStatus{}
			v := View{Host: lh, Desired: "want", Inputs: "in", Now: now}
			for _, change := range row.changes {
				change(&v, lh.Spec.Bootstrap, lh.Status.Bootstrap)
			}
			NewWithT(t).Expect(decide(v)).To(Equal(row.want))
		})
	}
}

func without(v *View, _ *infrav1.HostBootstrap, _ *infrav1.HostBootstrapStatus) {
	v.Host.Spec.Bootstrap = nil
}

func TestPausesGrowAndAreBounded(t *testing.T) {
	g := NewWithT(t)
	g.Expect([]time.Duration{pause(0), pause(1), pause(2), pause(3), pause(8), pause(1 << 30)}).To(Equal([]time.Duration{
		5 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 10 * time.Minute, 10 * time.Minute,
	}))
}

func TestAFleetIsNotCheckedInStep(t *testing.T) {
	g := NewWithT(t)
	seen := map[time.Duration]bool{}
	for _, uid := range []string{"a", "b", "c", "d", "e", "f"} {
		lh := &infrav1.LibvirtHost{}
		lh.UID = types.UID("host-" + uid)
		lh.Spec.Bootstrap = &infrav1.HostBootstrap{ReapplyInterval: &metav1.Duration{Duration: time.Hour}}
		v := View{Host: lh}
		g.Expect(v.interval()).To(And(BeNumerically(">=", time.Hour), BeNumerically("<=", 72*time.Minute), Equal(v.interval())))
		seen[v.interval()] = true
	}
	g.Expect(len(seen)).To(BeNumerically(">", 3))
}

func TestRunsHaveKeysOfTheirOwn(t *testing.T) {
	g := NewWithT(t)
	lh := &infrav1.LibvirtHost{}
	lh.Name, lh.Namespace, lh.UID = "h", "default", "u1"
	lh.Spec.Bootstrap = &infrav1.HostBootstrap{}
	v := View{Host: lh, Desired: "want", Inputs: "in", Now: now}
	first := NewRun(v, Action{Playbook: ansible.OnboardHost})
	g.Expect(first.Key).To(MatchRegexp(`^[A-Za-z0-9._-]{1,128}$`))
	g.Expect(first.Backend).To(Equal(infrav1.BackendSidecar))
	keys := map[string]bool{first.Key: true}
	later := v
	later.Now = now.Add(1)
	other := v
	other.Host = lh.DeepCopy()
	other.Host.UID = "u2"
	again := v
	again.Host = lh.DeepCopy()
	failed := first.DeepCopy()
	failed.Phase, failed.FinishedAt = "Failed", ago(0)
	again.Host.Status.Bootstrap = &infrav1.HostBootstrapStatus{Run: failed}
	for _, run := range []*infrav1.BootstrapRun{
		NewRun(later, Action{Playbook: ansible.OnboardHost}), NewRun(other, Action{Playbook: ansible.OnboardHost}),
		NewRun(v, Action{Playbook: ansible.OnboardHost, Check: true}), NewRun(v, Action{Playbook: ansible.OffboardHost}), NewRun(again, Action{Playbook: ansible.OnboardHost}),
	} {
		g.Expect(keys).NotTo(HaveKey(run.Key))
		keys[run.Key] = true
	}
	g.Expect(NewRun(again, Action{Playbook: ansible.OnboardHost}).Attempt).To(Equal(int32(2)))
}
