// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/virsh"
)

func restart(o *objects) { o.lmachine.Spec.RecoveryPolicy = infrav1.RecoveryPolicyRestart }

// stop ends the domain as somebody on the host would.
func (b *bench) stop() {
	b.connector.host.domains["ns-prod-m"].running, b.connector.host.steps = false, nil
}

// due makes the next attempt due.
func (b *bench) due(lm *infrav1.LibvirtMachine) {
	b.t.Helper()
	b.Expect(lm.Status.Recovery.NextAttemptTime).NotTo(BeNil())
	lm.Status.Recovery.NextAttemptTime = new(metav1.NewTime(time.Now().Add(-time.Second)))
	b.Expect(b.r.Client.Status().Update(b.t.Context(), lm)).To(Succeed())
}

func (b *bench) setPolicy(policy infrav1.RecoveryPolicy) {
	lm := &infrav1.LibvirtMachine{}
	b.Expect(b.r.Client.Get(b.t.Context(), key, lm)).To(Succeed())
	lm.Spec.RecoveryPolicy = policy
	b.Expect(b.r.Client.Update(b.t.Context(), lm)).To(Succeed())
}

func (b *bench) events() string {
	var all []string
	for {
		select {
		case e := <-b.recorder.Events:
			all = append(all, e)
		default:
			return strings.Join(all, "\n")
		}
	}
}

func TestThePolicyRestartsADomainAfterAPause(t *testing.T) {
	b := newBench(t, restart)
	b.reconcile()
	b.stop()
	lm, result := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.DomainNotRunningReason), "it is seen before it is mended")
	b.Expect(result.RequeueAfter).To(And(BeNumerically(">", 5*time.Second), BeNumerically("<=", 10*time.Second)))
	b.Expect(b.connector.host.steps).To(BeEmpty())
	message := conditions.GetMessage(lm, infrav1.MachineReadyCondition)
	lm, _ = b.reconcile()
	b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(Equal(message), "looking again does not put it off")

	b.due(lm)
	lm, _ = b.reconcile()
	b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue())
	b.Expect(b.connector.host.steps).To(Equal([]string{"start ns-prod-m"}))
	b.Expect(lm.Status.Recovery.Restarts).To(Equal(int32(1)))
	b.Expect(lm.Status.Recovery.Attempts).To(Equal(int32(1)))
	b.Expect(lm.Status.Recovery.NextAttemptTime).To(BeNil())
	b.Expect(b.events()).To(ContainSubstring("Restarted domain ns-prod-m was started again by spec.recoveryPolicy, in attempt 1 of 5"))

	// A machine that runs for long has recovered.
	lm.Status.Recovery.LastAttemptTime = new(metav1.NewTime(time.Now().Add(-recoveredAfter)))
	b.Expect(b.r.Client.Status().Update(t.Context(), lm)).To(Succeed())
	lm, _ = b.reconcile()
	b.Expect(lm.Status.Recovery.Attempts).To(BeZero())
	b.Expect(lm.Status.Recovery.Restarts).To(Equal(int32(1)), "the count of its life stays")
}

func TestThePolicyGivesUpAndCanBeGivenNewAttempts(t *testing.T) {
	b := newBench(t, restart)
	b.reconcile()
	var lm *infrav1.LibvirtMachine
	for range recoveryLimit {
		b.stop()
		lm, _ = b.reconcile()
		b.due(lm)
		lm, _ = b.reconcile()
		b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue())
	}
	b.stop()
	b.events()
	lm, _ = b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RestartLimitReachedReason))
	b.Expect(lm.Status.Recovery.NextAttemptTime).To(BeNil())
	b.Expect(b.events()).To(ContainSubstring("Warning RestartLimitReached"))

	b.setPolicy(infrav1.RecoveryPolicyNone)
	lm, _ = b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.DomainNotRunningReason))
	b.Expect(lm.Status.Recovery.Attempts).To(BeZero())
	b.setPolicy(infrav1.RecoveryPolicyRestart)
	lm, _ = b.reconcile()
	b.due(lm)
	lm, _ = b.reconcile()
	b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue())
	b.Expect(lm.Status.Recovery.Restarts).To(Equal(int32(recoveryLimit + 1)))
}

func TestAFailureToRestartIsToldUntilTheNextAttempt(t *testing.T) {
	b := newBench(t, restart)
	b.reconcile()
	host := &ailingHost{fakeHost: b.connector.host, method: "StartDomain", ailment: &virsh.Error{Reason: virsh.FileNotFound, Command: "start", Message: "words"}}
	b.r.Hosts = ailingConnector{host}
	b.stop()
	lm, _ := b.reconcile()
	b.due(lm)
	lm, result := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.HostFileNotFoundReason))
	b.Expect(result.RequeueAfter).To(BeNumerically(">", 0))
	b.Expect(lm.Status.Recovery.Attempts).To(Equal(int32(1)))
	b.Expect(lm.Status.Recovery.Restarts).To(BeZero())
	b.Expect(b.events()).To(ContainSubstring("Warning RecoveryFailed"))
	lm, result = b.reconcile()
	b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(And(ContainSubstring("attempt 2 of 5"), ContainSubstring("words")))
	b.Expect(result.RequeueAfter).To(BeNumerically("~", 20*time.Second, 2*time.Second))

	host.ailment = nil
	b.due(lm)
	lm, _ = b.reconcile()
	b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue())
	b.Expect(lm.Status.Recovery.LastFailure).To(BeEmpty())
}

func TestAMachineThatRanOutOfStorageIsResumedAndASuspendedOneIsNot(t *testing.T) {
	b := newBench(t, restart)
	b.reconcile()
	fake := b.connector.host.domains["ns-prod-m"]
	fake.other = &virsh.DomainInfo{State: virsh.StatePaused, Reason: virsh.ReasonIOError, DiskErrors: map[string]string{"vda": virsh.NoSpaceOnDisk}}
	b.connector.host.pools["default"].xml = poolWith("default", 0)
	lm, _ := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.NoSpaceReason))
	b.Expect(lm.Status.DomainState).To(Equal("paused"))

	b.connector.host.pools["default"].xml = poolWith("default", minRoom)
	// An operator that ends before or after the step finds the domain as it is.
	b.connector.host.failAt = len(b.connector.host.steps) + 1
	lm, _ = b.reconcile()
	b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeFalse())
	lm, _ = b.reconcile()
	b.due(lm)
	lm, _ = b.reconcile()
	b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue())
	b.Expect(b.connector.host.steps).To(ContainElement("resume ns-prod-m"))
	b.Expect(b.events()).To(ContainSubstring("Normal Resumed"))

	fake.other = &virsh.DomainInfo{State: virsh.StatePaused, Reason: "user"}
	b.connector.host.steps = nil
	lm, _ = b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.DomainPausedReason))
	b.Expect(lm.Status.Recovery.NextAttemptTime).To(BeNil())
	b.Expect(b.connector.host.steps).To(BeEmpty())
}

func TestADomainThatRunsUndefinedSaysSo(t *testing.T) {
	b := newBench(t, nil)
	b.reconcile()
	b.connector.host.domains["ns-prod-m"].other = &virsh.DomainInfo{State: virsh.StateRunning, Transient: true}
	lm, _ := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
	b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring("not defined there any more"))
}

// fakeEvents notes who is watched.
type fakeEvents struct{ watched map[client.ObjectKey]string }

func (e *fakeEvents) Watch(_ *infrav1.LibvirtHost, machine client.ObjectKey, domain string) {
	e.watched[machine] = domain
}
func (e *fakeEvents) Unwatch(machine client.ObjectKey) { delete(e.watched, machine) }
func (e *fakeEvents) Source() source.Source            { return nil }

func TestAMachineIsWatchedFromItsFirstRunToItsDeletion(t *testing.T) {
	b := newBench(t, nil)
	watcher := &fakeEvents{watched: map[client.ObjectKey]string{}}
	b.r.Events = watcher
	b.connector.err = errors.New("no route")
	b.reconcile()
	b.Expect(watcher.watched).To(BeEmpty(), "nothing runs yet")
	b.connector.err = nil
	b.reconcile()
	b.Expect(watcher.watched).To(Equal(map[client.ObjectKey]string{key: "ns-prod-m"}))

	// An operator that starts while the host is away watches as well.
	clear(watcher.watched)
	b.connector.err = errors.New("no route")
	b.reconcile()
	b.Expect(watcher.watched).To(HaveKey(key))
	b.connector.err = nil
	b.delete()
	b.reconcile()
	b.Expect(watcher.watched).To(BeEmpty())

	watcher.watched[key] = "ns-prod-m"
	b.reconcile()
	b.Expect(watcher.watched).To(BeEmpty(), "a machine that is gone is not watched")
}
