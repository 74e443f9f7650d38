// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// maxLastFailure bounds what the status keeps of a failure, in bytes.
const maxLastFailure = 1024

// recoveryOf is what is known of a machine's recovery.
func recoveryOf(lm *infrav1.LibvirtMachine, now time.Time) Recovery {
	r := Recovery{Restart: lm.Spec.RecoveryPolicy == infrav1.RecoveryPolicyRestart, Now: now}
	if status := lm.Status.Recovery; status != nil {
		r.Attempts, r.LastFailure = int(status.Attempts), status.LastFailure
		if status.NextAttemptTime != nil {
			r.Due = status.NextAttemptTime.Time
		}
	}
	return r
}

// noteRecovery counts an attempt to have a machine run again that has run before, and tells of it. failure is why it failed, if it
// did.
func (r *Reconciler) noteRecovery(s *scope, steps []Step, failure error) {
	attempt := slices.IndexFunc(steps, func(step Step) bool { return step.Kind == StepStartDomain || step.Kind == StepResumeDomain })
	if !s.desired.Provisioned || attempt < 0 {
		return
	}
	if s.machine.Status.Recovery == nil {
		s.machine.Status.Recovery = &infrav1.RecoveryStatus{}
	}
	status, now := s.machine.Status.Recovery, time.Now()
	status.Attempts++
	status.LastAttemptTime, status.NextAttemptTime, status.LastFailure = new(metav1.NewTime(now)), nil, ""
	reason, verb := "Restarted", "started again"
	if steps[attempt].Kind == StepResumeDomain {
		reason, verb = "Resumed", "resumed"
	}
	if failure != nil {
		status.LastFailure = failure.Error()[:min(len(failure.Error()), maxLastFailure)]
		r.Recorder.Eventf(s.machine, nil, corev1.EventTypeWarning, "RecoveryFailed", "Recovery", "domain %s could not be %s in attempt %d of %d: %s",
			s.desired.Name, verb, status.Attempts, recoveryLimit, status.LastFailure)
	} else {
		status.Restarts++
		r.Recorder.Eventf(s.machine, nil, corev1.EventTypeNormal, reason, "Recovery", "domain %s was %s by spec.recoveryPolicy, in attempt %d of %d",
			s.desired.Name, verb, status.Attempts, recoveryLimit)
	}
	s.desired.Recovery = recoveryOf(s.machine, now)
}

// updateRecovery keeps when the next attempt is due, and forgets the attempts of a machine that has recovered, or whose policy
// is None.
func updateRecovery(s *scope) {
	status := s.machine.Status.Recovery
	switch {
	case s.machine.Spec.RecoveryPolicy != infrav1.RecoveryPolicyRestart:
		if status != nil {
			status.Attempts, status.NextAttemptTime, status.LastFailure = 0, nil, ""
		}
	case !s.recoverAt.IsZero():
		if status == nil {
			status = &infrav1.RecoveryStatus{}
			s.machine.Status.Recovery = status
		}
		status.NextAttemptTime = new(metav1.NewTime(s.recoverAt))
	case status == nil:
	case s.running && status.LastAttemptTime != nil && time.Since(status.LastAttemptTime.Time) >= recoveredAfter:
		status.Attempts, status.NextAttemptTime, status.LastFailure = 0, nil, ""
	case s.observed:
		status.NextAttemptTime = nil
	}
}
