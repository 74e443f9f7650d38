// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostsetup

import (
	"hash/fnv"
	"time"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
)

// Step is what is to be done next.
type Step int

const (
	// Rest is nothing, until the object changes or, with After, until then.
	Rest Step = iota
	// Begin records a run of Playbook, and then submits it.
	Begin
	// Submit asks for the recorded run, which its backend may have already.
	Submit
	// Follow waits for the end of the recorded run.
	Follow
	// Cancel ends the recorded run.
	Cancel
	// Release is nothing for ever: there is no spec.bootstrap any more, or a deleted host needs no run.
	Release
)

const (
	// firstRetry and maxRetry bound the pause after a run that failed. It doubles with each attempt.
	firstRetry = 5 * time.Second
	maxRetry   = 10 * time.Minute
	// inputPoll is how often it is looked, during that pause, whether a Secret has changed: the operator does not watch Secrets.
	inputPoll = 15 * time.Second
	// cancelGrace is how long a deleted host waits for a backend that does not answer to end a run.
	cancelGrace = 5 * time.Minute
)

// Action is a Step and its circumstances.
type Action struct {
	Step     Step
	Playbook ansible.Playbook
	Check    bool
	// After is when to look again, zero for never.
	After time.Duration
}

// View is what decides.
type View struct {
	// Host has spec and status.
	Host *infrav1.LibvirtHost
	// Desired is the hash of the desired state, and Inputs that of what else runs depend on; see DesiredState and Inputs.
	Desired, Inputs string
	// InUse says that machines use the host, or that one has claimed it.
	InUse bool
	Now   time.Time
}

// Active says whether a run has not ended.
func Active(run *infrav1.BootstrapRun) bool { return run != nil && run.FinishedAt == nil }

// Current is the action that a recorded run, a deletion or the end of spec.bootstrap asks for. It needs neither Desired nor Inputs. Where it returns
// false, Next decides.
func Current(v View) (Action, bool) {
	lh := v.Host
	run := lastRun(lh)
	switch {
	case !lh.DeletionTimestamp.IsZero():
		return deleted(v, run)
	case lh.Spec.Bootstrap == nil:
		if Active(run) {
			return Action{Step: Cancel}, true
		}
		return Action{Step: Release}, true
	case Active(run) && run.Phase == infrav1.RunSubmitting && run.Mode == infrav1.BootstrapApply && lh.Spec.Bootstrap.Mode == infrav1.BootstrapCheck:
		// It has not begun, and is no longer wanted.
		return Action{Step: Cancel}, true
	case Active(run):
		// A spec that has changed meanwhile is brought about by the next run: one that is broken off leaves more open than one that ends.
		return goOn(run), true
	}
	return Action{}, false
}

func goOn(run *infrav1.BootstrapRun) Action {
	if run.Phase == infrav1.RunSubmitting {
		return Action{Step: Submit}
	}
	return Action{Step: Follow}
}

func deleted(v View, run *infrav1.BootstrapRun) (Action, bool) {
	offboard := WantsOffboarding(v.Host)
	switch {
	case v.InUse && Active(run):
		return goOn(run), true
	case v.InUse:
		return Action{Step: Rest}, true
	case Active(run) && (run.Playbook != string(ansible.OffboardHost) || !offboard):
		return Action{Step: Cancel}, true
	case Active(run):
		return goOn(run), true
	case !offboard || run != nil && run.Playbook == string(ansible.OffboardHost) && succeeded(run):
		return Action{Step: Release}, true
	}
	return Action{}, false
}

// WantsOffboarding says whether something has to be taken away from the host before the object goes.
func WantsOffboarding(lh *infrav1.LibvirtHost) bool {
	return lh.Spec.Bootstrap != nil && lh.Spec.Bootstrap.OffboardOnDelete && lh.Status.Bootstrap != nil && lh.Status.Bootstrap.TouchedAt != nil
}

// MayGiveUpCanceling says whether a deleted host has waited long enough for its backend.
func MayGiveUpCanceling(lh *infrav1.LibvirtHost, now time.Time) bool {
	return !lh.DeletionTimestamp.IsZero() && now.Sub(lh.DeletionTimestamp.Time) > cancelGrace
}

// Next is the action for a host that no run works on.
func Next(v View) Action {
	run, b := lastRun(v.Host), v.Host.Spec.Bootstrap
	switch {
	case !v.Host.DeletionTimestamp.IsZero():
		return v.begin(run, Action{Step: Begin, Playbook: ansible.OffboardHost})
	case b.Mode == infrav1.BootstrapCheck:
		return nextCheck(v, run)
	}
	st := v.status()
	apply := Action{Step: Begin, Playbook: ansible.OnboardHost}
	if st.AppliedStateHash != v.Desired {
		return v.begin(run, apply)
	}
	switch {
	case is(run, false, v.Desired) && !succeeded(run):
		// A repair has failed half-way.
		return v.begin(run, apply)
	case b.DriftPolicy == infrav1.DriftRepair && Drifted(run, v.Desired):
		return apply
	}
	return nextCheck(v, run)
}

// nextCheck is for hosts that are only compared: in mode check, and where a run has set them up.
func nextCheck(v View, run *infrav1.BootstrapRun) Action {
	check := Action{Step: Begin, Playbook: ansible.OnboardHost, Check: true}
	st := v.status()
	only := v.Host.Spec.Bootstrap.Mode == infrav1.BootstrapCheck
	compared := is(run, true, v.Desired)
	switch {
	case CheckRequest(v.Host) != "" && CheckRequest(v.Host) != st.CheckRequest:
		return check
	case only && !compared:
		return check
	case compared && !succeeded(run) && (only || v.interval() > 0):
		return v.begin(run, check)
	case v.interval() == 0:
		return Action{}
	}
	last := st.CheckedAt
	if last == nil {
		last = st.AppliedAt
	}
	if last == nil {
		return check
	}
	if wait := last.Add(v.interval()).Sub(v.Now); wait > 0 {
		return Action{After: wait}
	}
	return check
}

// CheckRequest is the value of the annotation that asks for a check, cut to what status holds.
func CheckRequest(lh *infrav1.LibvirtHost) string {
	return clip(lh.Annotations[infrav1.CheckNowAnnotation], maxShort)
}

// interval is the time between two checks, longer by up to a fifth so that a fleet is not checked in step; the same for one host each time.
func (v View) interval() time.Duration {
	interval := v.Host.Spec.Bootstrap.ReapplyInterval
	if interval == nil || interval.Duration <= 0 {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(v.Host.UID))
	return interval.Duration + interval.Duration/5*time.Duration(h.Sum32()%1000)/1000
}

func (v View) status() infrav1.HostBootstrapStatus {
	if v.Host.Status.Bootstrap == nil {
		return infrav1.HostBootstrapStatus{}
	}
	return *v.Host.Status.Bootstrap
}

// begin is the action, or the pause before it where the last run had the same purpose and failed.
func (v View) begin(run *infrav1.BootstrapRun, a Action) Action {
	if !v.repeats(run, a) || run.InputHash != v.Inputs {
		return a
	}
	if wait := run.FinishedAt.Add(pause(run.Attempt)).Sub(v.Now); wait > 0 {
		return Action{After: min(wait, inputPoll)}
	}
	return a
}

// repeats says whether the action is another attempt at what the last run failed to do.
func (v View) repeats(run *infrav1.BootstrapRun, a Action) bool {
	return run != nil && !succeeded(run) && run.Playbook == string(a.Playbook) && run.Mode == modeOf(a.Check) &&
		(a.Playbook == ansible.OffboardHost || run.DesiredStateHash == v.Desired)
}

func pause(attempt int32) time.Duration {
	doublings := min(max(attempt-1, 0), 10)
	return min(firstRetry<<doublings, maxRetry)
}

// is says whether a run that has ended compared with (check) or brought about this desired state.
func is(run *infrav1.BootstrapRun, check bool, desired string) bool {
	return run != nil && run.Playbook == string(ansible.OnboardHost) && run.Mode == modeOf(check) && run.DesiredStateHash == desired
}

// Drifted says whether a run was a check that has found differences from the desired state.
func Drifted(run *infrav1.BootstrapRun, desired string) bool {
	return is(run, true, desired) && succeeded(run) && run.Changed > 0
}

// KeepsPackages says whether a run is to name missing packages rather than install them: machines use the host, and nobody has asked for a change.
func (v View) KeepsPackages(run *infrav1.BootstrapRun) bool {
	return v.InUse && run.Mode == infrav1.BootstrapApply && run.DesiredStateHash != "" && v.status().AppliedStateHash == run.DesiredStateHash
}

func succeeded(run *infrav1.BootstrapRun) bool {
	return run.Phase == infrav1.RunPhase(ansible.Succeeded)
}

func modeOf(check bool) infrav1.BootstrapMode {
	if check {
		return infrav1.BootstrapCheck
	}
	return infrav1.BootstrapApply
}

func lastRun(lh *infrav1.LibvirtHost) *infrav1.BootstrapRun {
	if lh.Status.Bootstrap == nil {
		return nil
	}
	return lh.Status.Bootstrap.Run
}
