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
	"github.com/caplv/caplv/operator/hostsetup"
)

func newPair(t *testing.T) hostsetup.KeyPair {
	t.Helper()
	pair, err := hostsetup.NewKeyPair("test")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return pair
}

func withOffboarding(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.OffboardOnDelete = true }

// untilGone reconciles until the object is gone.
func (b *setupBench) untilGone() {
	b.t.Helper()
	b.Eventually(func() bool {
		_, err := b.r.Reconcile(b.t.Context(), request())
		b.Expect(err).NotTo(HaveOccurred())
		return b.gone()
	}, patience, 10*time.Millisecond).Should(BeTrue())
}

func TestADeletedHostIsOffboardedWhereThatIsAskedFor(t *testing.T) {
	b := newSetupBench(t, withOffboarding)
	b.setUp()
	b.told()
	b.delete()
	offboard := b.untilRun(b.backend.Keys()...)
	b.Expect(offboard.Playbook).To(Equal(ansible.OffboardHost))
	b.Expect(offboard.Check).To(BeFalse())
	b.backend.Task(offboard.Key, "The account is removed", 3, 20)
	var lh *infrav1.LibvirtHost
	b.Eventually(func() string {
		lh, _ = b.reconcile()
		return conditions.GetMessage(lh, infrav1.HostReadyCondition)
	}, patience).Should(ContainSubstring("task 3 of 20: The account is removed"))
	b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(infrav1.OffboardingReason))
	b.Expect(conditions.GetReason(lh, infrav1.BootstrappedCondition)).To(Equal(infrav1.OffboardingReason))
	b.end(ansible.HostResult{Phase: ansible.Succeeded, OK: 20, Changed: 12})
	b.untilGone()
	b.Expect(b.connector.forgotten).To(ContainElement(key))
	b.Expect(b.backend.Keys()).To(HaveLen(2))
}

func TestAnOffboardingThatFailsKeepsTheObjectAndNamesTheWayOut(t *testing.T) {
	b := newSetupBench(t, withOffboarding)
	b.setUp()
	b.delete()
	b.untilRun(b.backend.Keys()...)
	b.end(ansible.HostResult{Phase: ansible.Failed, FailedTask: "Nothing of CAPLV runs any more", Message: "a machine"})
	lh, result := b.settle()
	b.Expect(conditions.GetMessage(lh, infrav1.BootstrappedCondition)).To(And(
		ContainSubstring("Nothing of CAPLV runs any more"), ContainSubstring("set spec.bootstrap.offboardOnDelete to false")))
	b.Expect(result.RequeueAfter).To(BeNumerically(">", 0))
	b.now = b.now.Add(time.Minute)
	b.untilRun(b.backend.Keys()...)
	b.end(ansible.HostResult{Phase: ansible.Unreachable, Message: "no route"})
	b.settle()

	b.change(func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.OffboardOnDelete = false })
	b.untilGone()
}

func TestAHostThatCannotBeReachedForOffboardingNamesTheWayOut(t *testing.T) {
	b := newSetupBench(t, withOffboarding)
	b.setUp()
	b.delete()
	b.runners.fail(hosts.NewConfigError(infrav1.UnreachableReason, "no route"))
	lh, _ := b.reconcile()
	b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(infrav1.OffboardingReason))
	b.Expect(conditions.GetMessage(lh, infrav1.HostReadyCondition)).To(And(ContainSubstring("no route"), ContainSubstring("offboardOnDelete to false")))
	b.change(func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.OffboardOnDelete = false })
	b.untilGone()
}

func TestAHostThatNoRunHasTouchedGoesWithoutOne(t *testing.T) {
	for _, row := range []struct {
		name    string
		prepare func(b *setupBench)
	}{
		{"since no run could be begun", func(b *setupBench) {
			b.runners.fail(hosts.NewConfigError(infrav1.UnreachableReason, "no such host"))
			b.reconcile()
		}},
		{"since the only run did not get there", func(b *setupBench) {
			b.untilRun()
			b.end(ansible.HostResult{Phase: ansible.Unreachable, Message: "no route"})
			b.settle()
		}},
		{"since it was only compared", func(b *setupBench) {
			b.create(accountSecret, map[string][]byte{infrav1.SSHPrivateKeySecretKey: newPair(b.t).Private})
			b.change(func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.Mode = infrav1.BootstrapCheck })
			b.untilRun()
			b.end(drift)
			b.settle()
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newSetupBench(t, withOffboarding)
			row.prepare(b)
			before := len(b.backend.Keys())
			b.delete()
			b.untilGone()
			b.Expect(b.backend.Keys()).To(HaveLen(before))
		})
	}
}

func TestARunOnADeletedHostIsEndedFirst(t *testing.T) {
	for _, offboard := range []bool{false, true} {
		t.Run(map[bool]string{false: "and the object goes", true: "and the host is off-boarded then"}[offboard], func(t *testing.T) {
			b := newSetupBench(t, func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.OffboardOnDelete = offboard })
			first := b.untilRun()
			b.delete()
			if offboard {
				b.Expect(b.untilRun(first.Key).Playbook).To(Equal(ansible.OffboardHost))
				b.end(ansible.HostResult{Phase: ansible.Succeeded})
			}
			b.untilGone()
			b.Expect(b.backend.Cancels()).To(Equal(1))
		})
	}
}

func TestABackendThatIsGoneDoesNotHoldADeletionForEver(t *testing.T) {
	b := newSetupBench(t, nil)
	b.untilRun()
	b.backend.Fail(&ansible.Error{Reason: ansible.Unavailable, Message: "no socket"})
	b.delete()
	lh, result := b.reconcile()
	b.Expect(conditions.GetReason(lh, infrav1.BootstrappedCondition)).To(Equal(infrav1.RunnerUnavailableReason))
	b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(infrav1.HostDeletingReason))
	b.Expect(result.RequeueAfter).To(BeNumerically(">", 0))
	b.told()
	b.now = b.now.Add(6 * time.Minute)
	b.untilGone()
	b.Expect(b.told()).To(ContainElement(ContainSubstring("may go on")))
}

func TestADeletedHostWithMachinesIsNeitherOffboardedNorDisturbed(t *testing.T) {
	b := newSetupBench(t, withOffboarding)
	b.setUp()
	b.addMachine()
	b.delete()
	b.now = b.now.Add(time.Hour)
	lh, _ := b.reconcile()
	b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(infrav1.HostDeletingReason))
	b.Expect(b.backend.Keys()).To(HaveLen(1))
	b.Expect(b.r.Client.Delete(t.Context(), &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "m"}})).To(Succeed())
	b.Expect(b.untilRun(b.backend.Keys()...).Playbook).To(Equal(ansible.OffboardHost))
}
