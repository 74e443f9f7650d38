// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hosts"
)

func (b *bench) delete() {
	b.Expect(b.r.Client.Delete(b.t.Context(), &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})).To(Succeed())
}

// expectGone reconciles once more and expects the object to be gone and its connections closed.
func (b *bench) expectGone() {
	b.t.Helper()
	_, err := b.r.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: key})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(apierrors.IsNotFound(b.r.Client.Get(b.t.Context(), key, &infrav1.LibvirtHost{}))).To(BeTrue())
	b.Expect(b.connector.forgotten).To(ContainElement(key))
}

func TestTheFinalizerComesBeforeTheFirstProbe(t *testing.T) {
	b := newBench(t, func(lh *infrav1.LibvirtHost) { lh.Finalizers = nil })
	lh, _ := b.reconcile()
	b.Expect(lh.Finalizers).To(Equal([]string{infrav1.HostFinalizer}))
	b.Expect(b.connector.connects).To(BeZero())
	b.reconcile()
	b.Expect(b.connector.connects).To(Equal(1))
}

func TestADeletedHostWithoutMachinesGoesAtOnceAndIsNotContacted(t *testing.T) {
	b := newBench(t, nil)
	b.delete()
	b.expectGone()
	b.Expect(b.connector.connects).To(BeZero())
}

// bootCollector counts how often it is asked.
type bootCollector struct {
	asked int
	err   error
}

func (c *bootCollector) Collect(context.Context, *infrav1.LibvirtHost) error {
	c.asked++
	return c.err
}

func TestADeletedHostIsRidOfBootArtifactsAfterItsMachines(t *testing.T) {
	for name, failure := range map[string]error{"they are removed": nil, "the host cannot be reached, which holds up nothing": errors.New("no route")} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			boot := &bootCollector{err: failure}
			b.r.BootArtifacts = boot
			b.addMachine()
			b.reconcile()
			b.delete()
			b.reconcile()
			b.Expect(boot.asked).To(BeZero(), "a machine may still need them")
			b.Expect(b.r.Client.Delete(t.Context(), &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "m"}})).To(Succeed())
			b.expectGone()
			b.Expect(boot.asked).To(Equal(1))
		})
	}
}

func TestADeletedHostWaitsForItsMachines(t *testing.T) {
	b := newBench(t, nil)
	b.addMachine()
	b.reconcile()
	b.Expect(<-b.recorder.Events).To(ContainSubstring("Normal HostReady"))
	b.delete()
	lh, result := b.reconcile()
	b.Expect(lh.Finalizers).To(ContainElement(infrav1.HostFinalizer))
	b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(infrav1.HostDeletingReason))
	b.Expect(conditions.GetMessage(lh, infrav1.HostReadyCondition)).To(Equal("waiting for LibvirtMachines to be deleted: m"))
	b.Expect(lh.Status.Ready).To(HaveValue(BeFalse()))
	b.Expect(result.RequeueAfter).To(BeNumerically(">", 0))
	b.Expect(<-b.recorder.Events).To(ContainSubstring("Normal Deleting"))

	b.connector.err = hosts.NewConfigError(infrav1.UnreachableReason, "no route")
	b.now = b.now.Add(time.Hour)
	lh, _ = b.reconcile()
	b.Expect(conditions.GetMessage(lh, infrav1.HostReadyCondition)).To(ContainSubstring("they cannot be cleaned up: no route"))

	b.Expect(b.r.Client.Delete(b.t.Context(), &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "m"}})).To(Succeed())
	b.expectGone()
}

func TestADeletedHostWaitsForAMachineThatTheCacheDoesNotKnow(t *testing.T) {
	b := newBench(t, func(lh *infrav1.LibvirtHost) { lh.Status.MachineRef = &infrav1.MachineClaim{Name: "m", UID: "u"} })
	b.addMachine()
	m := &infrav1.LibvirtMachine{}
	b.Expect(b.r.Client.Get(b.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "m"}, m)).To(Succeed())
	base := m.DeepCopy()
	m.UID = "u"
	// The list of machines does not have it, as in a cache that lags behind.
	m.Spec.HostRef.Name = "elsewhere"
	b.Expect(b.r.Client.Patch(b.t.Context(), m, client.MergeFrom(base))).To(Succeed())
	b.delete()
	lh, _ := b.reconcile()
	b.Expect(lh.Finalizers).To(ContainElement(infrav1.HostFinalizer))
	b.Expect(conditions.GetMessage(lh, infrav1.HostReadyCondition)).To(ContainSubstring("waiting for LibvirtMachines to be deleted: m"))

	b.Expect(b.r.Client.Delete(b.t.Context(), m)).To(Succeed())
	b.expectGone()
}

func TestOfTwoObjectsForOneHostTheOlderIsUsed(t *testing.T) {
	created := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	for _, row := range []struct {
		name  string
		other infrav1.LibvirtHost
		want  string
	}{
		{"an older one of another namespace", infrav1.LibvirtHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "h", CreationTimestamp: metav1.NewTime(created.Add(-time.Minute))},
			Status:     infrav1.LibvirtHostStatus{SystemUUID: systemUUID, HostKeyFingerprint: fingerprint},
		}, infrav1.DuplicateHostReason},
		{"one of the same age that comes first by name", infrav1.LibvirtHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "a", CreationTimestamp: created},
			Status:     infrav1.LibvirtHostStatus{SystemUUID: systemUUID, HostKeyFingerprint: fingerprint},
		}, infrav1.DuplicateHostReason},
		{"a younger one", infrav1.LibvirtHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "h", CreationTimestamp: metav1.NewTime(created.Add(time.Minute))},
			Status:     infrav1.LibvirtHostStatus{SystemUUID: systemUUID, HostKeyFingerprint: fingerprint},
		}, infrav1.HostReadyReason},
		{"a vendor that gave out one UUID twice", infrav1.LibvirtHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "h", CreationTimestamp: metav1.NewTime(created.Add(-time.Minute))},
			Status:     infrav1.LibvirtHostStatus{SystemUUID: systemUUID, HostKeyFingerprint: "SHA256:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB"},
		}, infrav1.HostReadyReason},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, func(lh *infrav1.LibvirtHost) { lh.CreationTimestamp = created })
			b.Expect(b.r.Client.Create(t.Context(), &row.other)).To(Succeed())
			b.Expect(b.r.Client.Status().Update(t.Context(), &row.other)).To(Succeed())
			lh, _ := b.reconcile()
			b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(row.want))
			if row.want == infrav1.HostReadyReason {
				return
			}
			b.Expect(conditions.GetMessage(lh, infrav1.HostReadyCondition)).To(ContainSubstring(row.other.Namespace + "/" + row.other.Name))
			b.Expect(b.r.toDuplicates(t.Context(), &row.other)).To(HaveLen(1), "the end of the other wakes this one")
			b.Expect(b.r.Client.Delete(t.Context(), &row.other)).To(Succeed())
			b.now = b.now.Add(time.Hour)
			lh, _ = b.reconcile()
			b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(infrav1.HostReadyReason))
		})
	}
}
