// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostsetup

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/hosturi"
)

// namedTasks is how many tasks a message names.
const namedTasks = 5

var failures = map[infrav1.RunPhase]string{
	infrav1.RunPhase(ansible.Unreachable): infrav1.BootstrapUnreachableReason,
	infrav1.RunPhase(ansible.TimedOut):    infrav1.BootstrapTimedOutReason,
	infrav1.RunPhase(ansible.Lost):        infrav1.BootstrapLostReason,
	infrav1.RunPhase(ansible.Canceled):    infrav1.BootstrapCanceledReason,
	infrav1.RunRejected:                   infrav1.RunRejectedReason,
}

// Conclude sets Bootstrapped, and Drifted where a host was set up, to what the run in status says.
func Conclude(lh *infrav1.LibvirtHost) {
	run := lastRun(lh)
	switch {
	case run == nil || lh.Spec.Bootstrap == nil:
	case run.Playbook == string(ansible.OffboardHost):
		concludeOffboarding(lh, run)
	case run.Mode == infrav1.BootstrapCheck && lh.Spec.Bootstrap.Mode != infrav1.BootstrapCheck:
		concludeDriftCheck(lh, run)
	case run.Mode == infrav1.BootstrapCheck:
		concludeCheck(lh, run)
	default:
		concludeApply(lh, run)
	}
}

func concludeApply(lh *infrav1.LibvirtHost, run *infrav1.BootstrapRun) {
	st := lh.Status.Bootstrap
	switch {
	case Active(run) && st.AppliedStateHash == run.DesiredStateHash:
		// A repair: the host is what was wanted but for what Drifted says.
	case Active(run):
		setBootstrapped(lh, metav1.ConditionFalse, activeReason(run), "the host is being set up: "+activeText(run))
	case !succeeded(run):
		setBootstrapped(lh, metav1.ConditionFalse, failureReason(run), failure(run))
	default:
		setBootstrapped(lh, metav1.ConditionTrue, infrav1.BootstrappedReason,
			fmt.Sprintf("set up by roles %s: %s", orText(st.RolesVersion, "of an unknown version"), changes(run, "changed")))
		if conditions.Get(lh, infrav1.DriftedCondition) != nil {
			setDrifted(lh, metav1.ConditionFalse, infrav1.InSyncReason, "the last run has brought about what is wanted: "+changes(run, "changed"))
		}
	}
}

func concludeCheck(lh *infrav1.LibvirtHost, run *infrav1.BootstrapRun) {
	switch {
	case Active(run):
		// What an earlier check has found stands until this one has ended.
		if conditions.GetReason(lh, infrav1.BootstrappedCondition) != infrav1.BootstrapCheckedReason {
			setBootstrapped(lh, metav1.ConditionFalse, activeReason(run), "the host is being looked at: "+activeText(run))
		}
	case !succeeded(run):
		setBootstrapped(lh, metav1.ConditionFalse, failureReason(run), failure(run))
	case run.Changed == 0:
		setBootstrapped(lh, metav1.ConditionTrue, infrav1.BootstrapCheckedReason, "the host is as spec.bootstrap wants it; nothing would be changed")
	default:
		setBootstrapped(lh, metav1.ConditionFalse, infrav1.BootstrapCheckedReason,
			changes(run, "would change something")+"; set spec.bootstrap.mode to apply to have that done")
	}
}

func concludeDriftCheck(lh *infrav1.LibvirtHost, run *infrav1.BootstrapRun) {
	switch {
	case Active(run):
	case !succeeded(run):
		setDrifted(lh, metav1.ConditionUnknown, infrav1.DriftUnknownReason, "the host could not be compared: "+failure(run))
	case run.Changed == 0:
		setDrifted(lh, metav1.ConditionFalse, infrav1.InSyncReason, "the host is as the roles have set it up")
	default:
		next := "set spec.bootstrap.driftPolicy to Repair to have it put right"
		if lh.Spec.Bootstrap.DriftPolicy == infrav1.DriftRepair {
			next = "it is being put right"
		}
		setDrifted(lh, metav1.ConditionTrue, infrav1.DriftedReason, "somebody has changed the host: "+changes(run, "would change something")+"; "+next)
	}
}

func concludeOffboarding(lh *infrav1.LibvirtHost, run *infrav1.BootstrapRun) {
	switch {
	case Active(run):
		setBootstrapped(lh, metav1.ConditionFalse, infrav1.OffboardingReason, "what was set up is being taken away: "+activeText(run))
	case !succeeded(run):
		setBootstrapped(lh, metav1.ConditionFalse, infrav1.OffboardingReason, "what was set up could not be taken away: "+failure(run)+"; "+WayOut)
	}
}

// WayOut is what ends a deletion that an off-boarding holds up.
const WayOut = "it is tried again; to let the object go and leave the host as it is, set spec.bootstrap.offboardOnDelete to false"

// Problem sets the condition that a run is about to why it could not be begun, or why nothing is known of it. The run is a check if compares is true.
// The condition's type is returned.
func Problem(lh *infrav1.LibvirtHost, compares bool, reason, message string) string {
	message = clip(Scrub(message), maxMessage)
	run := lastRun(lh)
	switch {
	case !lh.DeletionTimestamp.IsZero() && (!Active(run) || run.Playbook == string(ansible.OffboardHost)):
		setBootstrapped(lh, metav1.ConditionFalse, infrav1.OffboardingReason, "the host cannot be off-boarded: "+message+"; "+WayOut)
	case compares && lh.Spec.Bootstrap != nil && lh.Spec.Bootstrap.Mode != infrav1.BootstrapCheck:
		// The host is set up all the same.
		setDrifted(lh, metav1.ConditionUnknown, infrav1.DriftUnknownReason, "the host could not be compared: "+message)
		return infrav1.DriftedCondition
	default:
		setBootstrapped(lh, metav1.ConditionFalse, reason, message)
	}
	return infrav1.BootstrappedCondition
}

// Harden sets SessionHardened on hosts in session mode that the operator sets up, and removes it from others.
func Harden(lh *infrav1.LibvirtHost) {
	uri, err := hosturi.Parse(lh.Spec.URI)
	if err != nil || uri.Path != hosturi.PathSession || lh.Spec.Bootstrap == nil {
		conditions.Delete(lh, infrav1.SessionHardenedCondition)
		return
	}
	c := metav1.Condition{Type: infrav1.SessionHardenedCondition, Status: metav1.ConditionFalse, Reason: infrav1.SessionNotHardenedReason}
	bootstrapped := conditions.Get(lh, infrav1.BootstrappedCondition)
	ready := conditions.Get(lh, infrav1.HostReadyCondition)
	switch {
	case ready != nil && ready.Reason == infrav1.SessionModeMisconfiguredReason:
		c.Message = ready.Message
	case bootstrapped != nil && bootstrapped.Status == metav1.ConditionTrue:
		c.Status, c.Reason = metav1.ConditionTrue, infrav1.SessionHardenedReason
		c.Message = "the account has lingering, its own libvirt daemon and the bridges of spec.bootstrap"
	case bootstrapped != nil:
		c.Message = "the host is not set up: " + bootstrapped.Message
	default:
		c.Message = "the host is not set up yet"
	}
	conditions.Set(lh, c)
}

// Waiting is the condition Ready of a host that is being set up for the first time.
func Waiting(lh *infrav1.LibvirtHost) metav1.Condition {
	message := "waiting for the host to be set up"
	if b := conditions.Get(lh, infrav1.BootstrappedCondition); b != nil {
		message += " (" + b.Reason + "): " + b.Message
	}
	return metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionFalse, Reason: infrav1.WaitingForBootstrapReason, Message: message}
}

// AwaitsFirstRun says whether the host is still to be set up for the first time, so that there is no sense in expecting it to answer.
func AwaitsFirstRun(lh *infrav1.LibvirtHost) bool {
	return lh.Spec.Bootstrap != nil && lh.Spec.Bootstrap.Mode != infrav1.BootstrapCheck &&
		(lh.Status.Bootstrap == nil || lh.Status.Bootstrap.AppliedAt == nil)
}

func activeReason(run *infrav1.BootstrapRun) string {
	if run.Phase == infrav1.RunPhase(ansible.Running) {
		return infrav1.BootstrapRunningReason
	}
	return infrav1.BootstrapQueuedReason
}

func activeText(run *infrav1.BootstrapRun) string {
	return orText(run.Progress, "waits for who runs the playbook")
}

func failureReason(run *infrav1.BootstrapRun) string {
	if reason, ok := failures[run.Phase]; ok {
		return reason
	}
	return infrav1.BootstrapFailedReason
}

// failure says what went wrong, and the next step where one is known.
func failure(run *infrav1.BootstrapRun) string {
	text := run.Message
	if run.FailedTask != "" {
		text = fmt.Sprintf("task %q failed: %s", run.FailedTask, orText(run.Message, "it said nothing"))
	}
	if text == "" {
		text = "no reason is known"
	}
	switch {
	case asksForPassword(run.Message):
		text += "; put the password of sudo under " + infrav1.BecomePasswordSecretKey + " into the Secret of spec.bootstrap.secretRef"
	case run.Phase == infrav1.RunPhase(ansible.Unreachable):
		text += "; see whether the account and the key of spec.bootstrap may log in"
	case run.Phase == infrav1.RunPhase(ansible.TimedOut):
		text += "; see spec.bootstrap.timeout"
	}
	return fmt.Sprintf("attempt %d: %s", max(run.Attempt, 1), text)
}

// asksForPassword recognises sudo and Ansible where sudo wants another password, or any: that is nothing that a phase tells.
func asksForPassword(message string) bool {
	lower := strings.ToLower(message)
	for _, text := range []string{"missing sudo password", "incorrect sudo password", "a password is required", "missing become password", "incorrect become password"} {
		if strings.Contains(lower, text) {
			return true
		}
	}
	return false
}

// changes counts the tasks that changed something, and names the first.
func changes(run *infrav1.BootstrapRun, verb string) string {
	text := fmt.Sprintf("%d of %d tasks %s", run.Changed, max(run.OK, run.Changed), verb)
	if len(run.ChangedTasks) == 0 || run.Changed == 0 {
		return text
	}
	named := run.ChangedTasks[:min(len(run.ChangedTasks), namedTasks)]
	text += ": " + strings.Join(named, "; ")
	if more := int(run.Changed) - len(named); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

func setBootstrapped(lh *infrav1.LibvirtHost, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(lh, metav1.Condition{Type: infrav1.BootstrappedCondition, Status: status, Reason: reason, Message: message})
}

func setDrifted(lh *infrav1.LibvirtHost, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(lh, metav1.Condition{Type: infrav1.DriftedCondition, Status: status, Reason: reason, Message: message})
}

func orText(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}
