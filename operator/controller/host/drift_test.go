// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/session"
)

var drift = ansible.HostResult{Phase: ansible.Succeeded, OK: 90, Changed: 2, ChangedTasks: []string{"The sudo rule is there", "The pool is started"}}

func withInterval(lh *infrav1.LibvirtHost) {
	lh.Spec.Bootstrap.ReapplyInterval = &metav1.Duration{Duration: time.Hour}
}

func TestDriftIsReported(t *testing.T) {
	b := newSetupBench(t, withInterval)
	b.setUp()
	keys := b.backend.Keys()
	_, result := b.reconcile()
	b.Expect(result.RequeueAfter).To(And(BeNumerically(">=", time.Hour), BeNumerically("<=", 72*time.Minute)))
	b.Expect(b.backend.Keys()).To(Equal(keys))

	b.told()
	b.now = b.now.Add(73 * time.Minute)
	check := b.untilRun(keys...)
	b.Expect(check.Check).To(BeTrue())
	lh, _ := b.reconcile()
	b.Expect(conditions.IsTrue(lh, infrav1.BootstrappedCondition)).To(BeTrue(), "a host that is looked at is set up all the same")
	b.Expect(conditions.IsTrue(lh, infrav1.HostReadyCondition)).To(BeTrue())
	b.end(drift)
	lh = b.until(infrav1.DriftedCondition, infrav1.DriftedReason)
	b.Expect(conditions.IsTrue(lh, infrav1.DriftedCondition)).To(BeTrue())
	b.Expect(conditions.GetMessage(lh, infrav1.DriftedCondition)).To(And(ContainSubstring("The sudo rule is there; The pool is started"), ContainSubstring("driftPolicy")))
	b.Expect(lh.Status.Bootstrap.Run.ChangedTasks).To(Equal(drift.ChangedTasks))
	b.Expect(reasons(b.told())).To(Equal([]string{"Warning Drifted"}))
	_, result = b.reconcile()
	b.Expect(result.RequeueAfter).To(BeNumerically(">=", time.Hour))
	b.Expect(b.backend.Keys()).To(HaveLen(2), "a report is all")

	b.now = b.now.Add(73 * time.Minute)
	b.untilRun(b.backend.Keys()...)
	b.end(ansible.HostResult{Phase: ansible.Succeeded, OK: 90})
	b.until(infrav1.DriftedCondition, infrav1.InSyncReason)
}

func TestDriftIsRepairedWhereThatIsAskedFor(t *testing.T) {
	for _, inUse := range []bool{false, true} {
		t.Run(map[bool]string{false: "on an idle host", true: "on a host with machines, where no packages are installed"}[inUse], func(t *testing.T) {
			b := newSetupBench(t, func(lh *infrav1.LibvirtHost) {
				withInterval(lh)
				lh.Spec.Bootstrap.DriftPolicy = infrav1.DriftRepair
			})
			b.setUp()
			if inUse {
				b.addMachine()
			}
			b.now = b.now.Add(73 * time.Minute)
			b.untilRun(b.backend.Keys()...)
			b.end(drift)
			repair := b.untilRun(b.backend.Keys()...)
			b.Expect(repair.Check).To(BeFalse())
			b.Expect(repair.Variables["caplv_package_policy"]).To(Equal(map[bool]string{false: "install", true: "check"}[inUse]))
			lh, _ := b.reconcile()
			b.Expect(conditions.GetReason(lh, infrav1.DriftedCondition)).To(Equal(infrav1.DriftedReason))
			b.Expect(conditions.IsTrue(lh, infrav1.BootstrappedCondition)).To(BeTrue())
			b.end(ansible.HostResult{Phase: ansible.Failed, FailedTask: "The pool is started", Message: "no"})
			b.until(infrav1.BootstrappedCondition, infrav1.BootstrapFailedReason)
			b.now = b.now.Add(time.Minute)
			b.untilRun(b.backend.Keys()...)
			b.end(ansible.HostResult{Phase: ansible.Succeeded, OK: 90, Changed: 2})
			lh = b.until(infrav1.DriftedCondition, infrav1.InSyncReason)
			b.Expect(conditions.IsTrue(lh, infrav1.BootstrappedCondition)).To(BeTrue())
			b.reconcile()
			b.Expect(b.backend.Keys()).To(HaveLen(4))
		})
	}
}

func TestAChangedSpecInstallsPackagesOnAHostWithMachinesToo(t *testing.T) {
	b := newSetupBench(t, nil)
	b.setUp()
	b.addMachine()
	b.change(func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.Bridges = []string{"br0", "br1"} })
	b.Expect(b.untilRun(b.backend.Keys()...).Variables["caplv_package_policy"]).To(Equal("install"))
}

func TestACheckThatCannotBeCarriedOutLeavesTheHostReady(t *testing.T) {
	b := newSetupBench(t, withInterval)
	b.setUp()
	b.now = b.now.Add(73 * time.Minute)
	b.runners.fail(hosts.NewConfigError(infrav1.SecretNotFoundReason, "no Secret"))
	lh, _ := b.reconcile()
	b.Expect(conditions.GetReason(lh, infrav1.DriftedCondition)).To(Equal(infrav1.DriftUnknownReason))
	b.Expect(conditions.GetMessage(lh, infrav1.DriftedCondition)).To(ContainSubstring("no Secret"))
	b.Expect(conditions.IsTrue(lh, infrav1.BootstrappedCondition)).To(BeTrue())

	b.runners.fail(nil)
	b.untilRun(b.backend.Keys()...)
	b.end(ansible.HostResult{Phase: ansible.Unreachable, Message: "no route"})
	lh, _ = b.settle()
	b.Expect(conditions.GetReason(lh, infrav1.DriftedCondition)).To(Equal(infrav1.DriftUnknownReason))
	b.Expect(conditions.IsTrue(lh, infrav1.BootstrappedCondition)).To(BeTrue())
	b.now = b.now.Add(time.Minute)
	b.untilRun(b.backend.Keys()...)
	b.end(ansible.HostResult{Phase: ansible.Succeeded, OK: 90})
	lh = b.until(infrav1.DriftedCondition, infrav1.InSyncReason)
	b.Expect(conditions.IsTrue(lh, infrav1.HostReadyCondition)).To(BeTrue())
}

func TestAnAnnotationAsksForOneCheck(t *testing.T) {
	b := newSetupBench(t, nil)
	b.setUp()
	b.change(func(lh *infrav1.LibvirtHost) { lh.Annotations = map[string]string{infrav1.CheckNowAnnotation: "1"} })
	b.Expect(b.untilRun(b.backend.Keys()...).Check).To(BeTrue())
	b.end(drift)
	b.until(infrav1.DriftedCondition, infrav1.DriftedReason)
	b.now = b.now.Add(24 * time.Hour)
	b.reconcile()
	b.Expect(b.backend.Keys()).To(HaveLen(2))
	b.change(func(lh *infrav1.LibvirtHost) { lh.Annotations[infrav1.CheckNowAnnotation] = "2" })
	b.untilRun(b.backend.Keys()...)
}

func TestInModeCheckNothingIsChanged(t *testing.T) {
	b := newSetupBench(t, func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.Mode = infrav1.BootstrapCheck })
	lh, _ := b.reconcile()
	b.Expect(conditions.GetReason(lh, infrav1.BootstrappedCondition)).To(Equal(infrav1.SecretNotFoundReason), "not even a key is made")
	b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(infrav1.UnauthorizedReason), "the host is probed as ever")

	pair := newPair(t)
	b.create(accountSecret, map[string][]byte{infrav1.SSHPrivateKeySecretKey: pair.Private})
	b.Expect(b.untilRun().Check).To(BeTrue())
	b.end(drift)
	lh = b.until(infrav1.BootstrappedCondition, infrav1.BootstrapCheckedReason)
	b.Expect(conditions.IsTrue(lh, infrav1.BootstrappedCondition)).To(BeFalse())
	b.Expect(conditions.GetMessage(lh, infrav1.BootstrappedCondition)).To(ContainSubstring("2 of 90 tasks would change something: The sudo rule is there"))
	b.Expect(lh.Status.Bootstrap.TouchedAt).To(BeNil())
	b.now = b.now.Add(24 * time.Hour)
	b.reconcile()
	b.Expect(b.backend.Keys()).To(HaveLen(1), "a host is not compared again and again")

	b.change(func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.Bridges = nil })
	b.untilRun(b.backend.Keys()...)
	b.end(ansible.HostResult{Phase: ansible.Succeeded, OK: 90})
	b.Eventually(func() bool {
		lh, _ = b.reconcile()
		return conditions.IsTrue(lh, infrav1.BootstrappedCondition)
	}, patience).Should(BeTrue())
}

func TestAHostThatAnswersAlreadyIsReadyWhileItIsSetUp(t *testing.T) {
	b := newSetupBench(t, nil)
	b.connector.err = nil
	b.untilRun()
	lh, _ := b.reconcile()
	b.Expect(conditions.IsTrue(lh, infrav1.HostReadyCondition)).To(BeTrue())
	b.Expect(conditions.IsTrue(lh, infrav1.BootstrappedCondition)).To(BeFalse())
}

func TestASessionThatLacksSomethingIsNotHardened(t *testing.T) {
	b := newSetupBench(t, nil)
	b.setUp()
	b.addMachine()
	b.connector.session = &session.Error{Missing: []session.Piece{{Name: session.PieceLinger, Problem: "it is off", Remedy: "turn it on"}}}
	b.now = b.now.Add(time.Hour)
	lh, _ := b.reconcile()
	b.Expect(conditions.GetReason(lh, infrav1.SessionHardenedCondition)).To(Equal(infrav1.SessionNotHardenedReason))
	b.Expect(conditions.GetMessage(lh, infrav1.SessionHardenedCondition)).To(ContainSubstring("it is off"))
	b.connector.session = nil
	b.now = b.now.Add(time.Hour)
	lh, _ = b.reconcile()
	b.Expect(conditions.GetReason(lh, infrav1.SessionHardenedCondition)).To(Equal(infrav1.SessionHardenedReason))
}

func TestAHostInSystemModeHasNothingToSayOfSessions(t *testing.T) {
	b := newSetupBench(t, func(lh *infrav1.LibvirtHost) {
		lh.Spec.URI = "qemu+ssh://caplv@b/system"
		lh.Spec.Bootstrap.Bridges = nil
	})
	lh := b.setUp()
	b.Expect(conditions.Get(lh, infrav1.SessionHardenedCondition)).To(BeNil())
	b.Expect(b.backend.Requests()[0].Variables).NotTo(HaveKey("caplv_bridges"))
}

func TestWithoutSpecBootstrapNothingOfItStays(t *testing.T) {
	b := newSetupBench(t, nil)
	first := b.untilRun()
	b.change(func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap = nil })
	lh, _ := b.reconcile()
	b.Expect(b.backend.Cancels()).To(Equal(1))
	b.Expect(lh.Status.Bootstrap).To(BeNil())
	b.Expect(conditions.Get(lh, infrav1.BootstrappedCondition)).To(BeNil())
	b.Expect(conditions.Get(lh, infrav1.SessionHardenedCondition)).To(BeNil())
	lh, _ = b.reconcile()
	b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(infrav1.UnauthorizedReason), "it is probed as ever")
	b.Expect(b.backend.Keys()).To(Equal([]string{first.Key}))
}
