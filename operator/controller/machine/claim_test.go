// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hosts"
)

var hostKey = client.ObjectKey{Namespace: key.Namespace, Name: "h"}

func (b *bench) lhost() *infrav1.LibvirtHost {
	b.t.Helper()
	lh := &infrav1.LibvirtHost{}
	b.Expect(b.r.Client.Get(b.t.Context(), hostKey, lh)).To(Succeed())
	return lh
}

// addRival creates another machine on the same host, and gives it the host.
func (b *bench) addRival(change func(*infrav1.LibvirtMachine)) {
	b.t.Helper()
	rival := newObjects().lmachine
	rival.Name, rival.UID, rival.OwnerReferences = "rival", "uid-rival", nil
	if change != nil {
		change(rival)
	}
	b.Expect(b.r.Client.Create(b.t.Context(), rival)).To(Succeed())
	lh := b.lhost()
	lh.Status.MachineRef = &infrav1.MachineClaim{Name: rival.Name, UID: "uid-rival"}
	b.Expect(b.r.Client.Status().Update(b.t.Context(), lh)).To(Succeed())
}

func TestAMachineClaimsItsHostBeforeTheFirstStepAndReleasesItAfterTheLast(t *testing.T) {
	b := newBench(t, nil)
	b.connector.host.failAt = 1
	b.reconcile()
	b.Expect(b.lhost().Status.MachineRef).To(HaveValue(Equal(infrav1.MachineClaim{Name: key.Name, UID: "uid-1"})))
	b.reconcile()

	b.delete()
	b.connector.err = hosts.NewConfigError(infrav1.UnreachableReason, "no route")
	b.reconcile()
	b.Expect(b.lhost().Status.MachineRef).NotTo(BeNil(), "what may still be there keeps the host")
	b.connector.err = nil
	lm, _ := b.reconcile()
	b.Expect(lm).To(BeNil())
	b.Expect(b.lhost().Status.MachineRef).To(BeNil())
}

func TestAMachineWaitsForTheOneThatHasItsHost(t *testing.T) {
	b := newBench(t, nil)
	b.addRival(nil)
	lm, result := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.HostInUseReason))
	b.Expect(conditions.GetReason(lm, infrav1.HostAvailableCondition)).To(Equal(infrav1.HostInUseReason))
	b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring("is used by LibvirtMachine rival"))
	b.Expect(b.connector.host.steps).To(BeEmpty())
	b.Expect(lm.Status.DomainUUID).To(BeEmpty())
	b.Expect(result.RequeueAfter).To(BeNumerically(">", 0))

	rival := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "rival"}}
	b.Expect(b.r.Client.Delete(t.Context(), rival)).To(Succeed())
	lm, _ = b.reconcile()
	b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring("LibvirtMachine rival, which is being deleted"))

	b.Expect(b.r.Client.Patch(t.Context(), rival, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	lm, _ = b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason), "a claim ends with its machine")
	b.Expect(b.lhost().Status.MachineRef.Name).To(Equal(key.Name))
}

func TestAMachineThatNeverHadTheHostDoesNotReleaseIt(t *testing.T) {
	b := newBench(t, nil)
	b.addRival(nil)
	b.reconcile()
	b.delete()
	lm, _ := b.reconcile()
	b.Expect(lm).To(BeNil())
	b.Expect(b.lhost().Status.MachineRef.Name).To(Equal("rival"))
}

func TestAClaimOfAnEarlierMachineOfTheSameNameIsTakenOver(t *testing.T) {
	b := newBench(t, nil)
	lh := b.lhost()
	lh.Status.MachineRef = &infrav1.MachineClaim{Name: key.Name, UID: "uid-0"}
	b.Expect(b.r.Client.Status().Update(t.Context(), lh)).To(Succeed())
	lm, _ := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
	b.Expect(b.lhost().Status.MachineRef.UID).To(Equal(types.UID("uid-1")))
}

// TestAStaleCacheDoesNotGiveTheHostAway has the cache show a host that is free while it is taken already.
func TestAStaleCacheDoesNotGiveTheHostAway(t *testing.T) {
	b := newBench(t, nil)
	stale := b.lhost()
	b.addRival(nil)
	live, ok := b.r.Client.(client.WithWatch)
	b.Expect(ok).To(BeTrue())
	b.r.Client = interceptor.NewClient(live, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if lh, ok := o.(*infrav1.LibvirtHost); ok {
			stale.DeepCopyInto(lh)
			return nil
		}
		return c.Get(ctx, k, o, opts...)
	}})
	lm, _ := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.HostInUseReason))
	b.Expect(b.connector.host.steps).To(BeEmpty())
}

func TestAHostThatIsBeingDeletedTakesNoNewMachine(t *testing.T) {
	b := newBench(t, func(o *objects) { o.lhost.Finalizers = []string{infrav1.HostFinalizer} })
	b.Expect(b.r.Client.Delete(t.Context(), b.lhost())).To(Succeed())
	lm, _ := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.HostNotReadyReason))
	b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring("is being deleted"))
	b.Expect(b.connector.host.steps).To(BeEmpty())
}

func TestARunningMachineIsLookedAtWhileItsHostTakesNoNewOnes(t *testing.T) {
	for _, reason := range stillAnswers {
		t.Run(reason, func(t *testing.T) {
			b := newBench(t, nil)
			b.reconcile()
			lh := b.lhost()
			conditions.Set(lh, metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionFalse, Reason: reason, Message: "x"})
			b.Expect(b.r.Client.Status().Update(t.Context(), lh)).To(Succeed())
			lm, _ := b.reconcile()
			b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue())
		})
	}
}

func TestAFailureToClaimIsRetried(t *testing.T) {
	b := newBench(t, nil)
	live, ok := b.r.Client.(client.WithWatch)
	b.Expect(ok).To(BeTrue())
	b.r.Client = interceptor.NewClient(live, interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
		if _, ok := o.(*infrav1.LibvirtHost); ok {
			return apierrors.NewInternalError(context.DeadlineExceeded)
		}
		return c.SubResource(sub).Patch(ctx, o, p, opts...)
	}})
	_, err := b.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	b.Expect(err).To(MatchError(ContainSubstring("claiming LibvirtHost ns/h")))
	b.Expect(b.connector.host.steps).To(BeEmpty())
}

func TestANewMachineWaitsUntilAnIdleHostHasBeenProbedAgain(t *testing.T) {
	b := newBench(t, func(o *objects) {
		o.lhost.Generation, o.lhost.Status.ObservedGeneration = 2, 2
		o.lhost.Status.LastChecked = new(metav1.NewTime(time.Now().Add(-time.Hour)))
	})
	lm, _ := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.HostNotReadyReason))
	b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring("is being probed again"))

	before := b.lhost()
	after := before.DeepCopy()
	after.Status.LastChecked = new(metav1.Now())
	after.Status.Capacity.AvailableMemoryMB = 1024
	b.Expect(hostReadinessChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(BeTrue(), "the probe wakes it")
	b.Expect(b.r.Client.Status().Update(t.Context(), after)).To(Succeed())
	lm, _ = b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
	b.Expect(lm.Status.MemoryMB).To(Equal(int32(1024)), "it is sized from what the new probe has found")

	// One that runs is looked at whatever is known of its host.
	lh := b.lhost()
	lh.Status.LastChecked = new(metav1.NewTime(time.Now().Add(-time.Hour)))
	b.Expect(b.r.Client.Status().Update(t.Context(), lh)).To(Succeed())
	lm, _ = b.reconcile()
	b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue())
}
