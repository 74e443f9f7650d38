// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// annotate sets an annotation of a LibvirtMachine, or removes it.
func (w *world) annotate(name, annotation string, set bool) {
	w.t.Helper()
	lm := w.machine(name)
	base := lm.DeepCopy()
	if lm.Annotations == nil {
		lm.Annotations = map[string]string{}
	}
	lm.Annotations[annotation] = ""
	if !set {
		delete(lm.Annotations, annotation)
	}
	w.g.Expect(suite.cp.Client().Patch(w.t.Context(), lm, client.MergeFrom(base))).To(Succeed())
}

func TestTheNextMachineWaitsForTheOneThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.expectHost("True/HostReady")
	w.createMachine(w.libvirtMachine("worker01"))
	w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")
	lh := w.expectHost("True/HostReady")
	w.g.Expect(lh.Status.MachineRef.Name).To(Equal("worker01"))

	// Held back, so that there is something to wait for.
	w.annotate("worker01", clusterv1.PausedAnnotation, true)
	w.deleteMachine("worker01")
	w.g.Eventually(func() bool { return w.machine("worker01").DeletionTimestamp.IsZero() }, provisionTime, poll).Should(BeFalse())

	second := w.libvirtMachine("worker02")
	second.Spec.Network.Addresses = []infrav1.AddressCIDR{"192.0.2.51/24"}
	w.createMachine(second)
	lm := w.expectMachine("worker02", infrav1.HostAvailableCondition, "False/"+infrav1.HostInUseReason)
	w.g.Expect(conditions.GetMessage(lm, infrav1.HostAvailableCondition)).To(ContainSubstring("LibvirtMachine worker01, which is being deleted"))

	w.annotate("worker01", clusterv1.PausedAnnotation, false)
	w.expectGone("worker01")
	w.expectMachine("worker02", infrav1.MachineReadyCondition, "True/Running")
	lh = w.expectHost("True/HostReady")
	w.g.Expect(lh.Status.MachineRef.Name).To(Equal("worker02"))
	w.deleteMachine("worker02")
	w.expectGone("worker02")
	w.expectListing(w.untouched)
}

func TestADeletedHostStaysUntilItsMachineIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.expectHost("True/HostReady")
	w.createMachine(w.libvirtMachine("worker01"))
	w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")
	w.g.Expect(suite.cp.Client().Delete(t.Context(), w.lhost)).To(Succeed())
	lh := w.expectHost("False/" + infrav1.HostDeletingReason)
	w.g.Expect(conditions.GetMessage(lh, infrav1.HostReadyCondition)).To(Equal("waiting for LibvirtMachines to be deleted: worker01"))
	lm := w.machine("worker01")
	w.g.Expect(condition(lm, infrav1.MachineReadyCondition)).To(Equal("True/Running"), "a machine that runs does not suffer from it")

	w.deleteMachine("worker01")
	w.expectGone("worker01")
	w.expectListing(w.untouched)
	w.g.Eventually(func() bool {
		return apierrors.IsNotFound(suite.cp.Client().Get(t.Context(), client.ObjectKeyFromObject(w.lhost), &infrav1.LibvirtHost{}))
	}, provisionTime, poll).Should(BeTrue())
}
