// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// action is what is to be done next.
type action int

const (
	// wait until something changes, or for the given time.
	wait action = iota
	// attempt asks for a restart of the domain, with a new request.
	attempt
	// giveBack the Machine: nothing has helped, or can.
	giveBack
)

// decision is an action with its condition.
type decision struct {
	action  action
	reason  string
	message string
	// after is when to decide anew; zero for not before something changes.
	after time.Duration
}

// decide says what to do for a Machine whose LibvirtMachine is lm, nil for one that does not exist.
func decide(rem *infrav1.LibvirtRemediation, m *clusterv1.Machine, lm *infrav1.LibvirtMachine, now time.Time) decision {
	strategy, attempts := rem.Spec.Strategy, rem.Status.Attempts
	tries := 1 + ptr.Deref(strategy.RetryLimit, 1)
	if healthyAgain(rem, m) {
		return decision{action: wait, reason: infrav1.WaitingForHealthReason, message: "the MachineHealthCheck has found the Machine healthy, and is about to delete this object"}
	}
	if lm == nil || !ptr.Deref(lm.Status.Initialization.Provisioned, false) {
		return decision{action: giveBack, message: "it has no domain that has run, so there is nothing to restart"}
	}
	timeout := time.Duration(strategy.TimeoutSeconds) * time.Second
	since := ptr.Deref(rem.Status.LastAttemptTime, metav1.Time{}).Time
	status, id := lm.Status.RestartRequest, request(rem)
	completed := status.Completed(id)
	if completed {
		since = status.CompletionTime.Time
	}
	left := since.Add(timeout).Sub(now)
	counted := fmt.Sprintf("attempt %d of %d", attempts, tries)
	switch {
	case attempts == 0 || left <= 0 && attempts < tries:
		return decision{action: attempt}
	case left <= 0:
		return decision{action: giveBack, message: fmt.Sprintf("it is still unhealthy %s after %s", timeout, counted)}
	case completed:
		return decision{
			wait, infrav1.WaitingForHealthReason,
			fmt.Sprintf("domain %s was started again in %s; the MachineHealthCheck has until %s to find the Machine healthy", lm.Status.NodeName, counted, clock(now.Add(left))), left,
		}
	}
	d := decision{
		wait, infrav1.RestartingDomainReason,
		fmt.Sprintf("domain %s is asked to be started again (%s), in %s until %s", lm.Status.NodeName, strategy.Type, counted, clock(now.Add(left))), left,
	}
	if status != nil && status.Request == id && status.Message != "" {
		d.message += "; " + status.Message
	}
	return d
}

func clock(t time.Time) string { return t.UTC().Format(time.TimeOnly + "Z") }

// healthyAgain says whether the MachineHealthCheck has found the Machine healthy since it asked for a remediation. An older
// verdict does not count: the check creates the LibvirtRemediation before it writes that the Machine is unhealthy.
func healthyAgain(rem *infrav1.LibvirtRemediation, m *clusterv1.Machine) bool {
	c := conditions.Get(m, clusterv1.MachineHealthCheckSucceededCondition)
	return c != nil && c.Status == metav1.ConditionTrue && c.LastTransitionTime.After(rem.CreationTimestamp.Time)
}

// request is the restart request of the latest attempt.
func request(rem *infrav1.LibvirtRemediation) string {
	how := rem.Spec.Strategy.Type
	if how == "" {
		how = infrav1.RestartTypePowerCycle
	}
	return infrav1.RestartRequestValue(how, fmt.Sprintf("%s-%d", rem.UID, rem.Status.Attempts))
}

// replacesMachines says whether a Machine's owner replaces it when it is asked to by the condition OwnerRemediated. Others, such as
// 5-Spot's ScheduledMachine, know nothing of that condition.
func replacesMachines(m *clusterv1.Machine) bool {
	owner := metav1.GetControllerOf(m)
	if owner == nil {
		return false
	}
	group := groupOf(owner.APIVersion)
	return group == clusterv1.GroupVersion.Group && owner.Kind == "MachineSet" || group == "controlplane.cluster.x-k8s.io"
}
