// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/virsh"
)

func TestOnlyAGuestThatCanShutDownIsAskedTo(t *testing.T) {
	for _, row := range []struct {
		name     string
		domain   virsh.DomainInfo
		shutdown ShutdownState
		want     []StepKind
		waiting  bool
	}{
		{"it runs and has yet to be asked", virsh.DomainInfo{State: virsh.StateRunning}, ShutdownDue, []StepKind{StepShutdownDomain}, false},
		{"it was asked and runs", virsh.DomainInfo{State: virsh.StateRunning}, ShutdownUnderWay, nil, true},
		{"its grace is over", virsh.DomainInfo{State: virsh.StateRunning}, ShutdownOver, []StepKind{StepDestroyDomain, StepRemoveDirectory, StepUndefineDomain}, false},
		{"it is paused", virsh.DomainInfo{State: virsh.StatePaused}, ShutdownDue, []StepKind{StepDestroyDomain, StepRemoveDirectory, StepUndefineDomain}, false},
		{"it is off", virsh.DomainInfo{State: virsh.StateShutOff}, ShutdownUnderWay, []StepKind{StepRemoveDirectory, StepUndefineDomain}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			f, d := newFakeHost(), desired()
			_, err := converge(t, g, f, d, provisioning)
			g.Expect(err).NotTo(HaveOccurred())
			f.domains[d.Name].other = &row.domain
			f.pools["default"].volumes = nil
			obs, err := f.Observe(t.Context(), d.query())
			g.Expect(err).NotTo(HaveOccurred())
			plan, err := PlanDeletion(d, obs, Progress{Shutdown: row.shutdown})
			g.Expect(err).NotTo(HaveOccurred())
			var kinds []StepKind
			for _, step := range plan.Steps {
				kinds = append(kinds, step.Kind)
			}
			g.Expect(kinds).To(Equal(row.want))
			g.Expect(plan.Waiting).To(Equal(row.waiting))
			g.Expect(plan.Done()).To(BeFalse())
		})
	}
}

func TestAGuestThatCannotBeAskedToShutDownIsDestroyed(t *testing.T) {
	b := newBench(t, func(o *objects) { o.lmachine.Annotations = map[string]string{infrav1.SkipDrainAnnotation: ""} })
	lm, _ := b.reconcile()
	b.Expect(b.r.Client.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: lm.Status.NodeName}, Spec: corev1.NodeSpec{ProviderID: lm.Spec.ProviderID},
	})).To(Succeed())
	b.delete()
	b.connector.host.failAt = len(b.connector.host.steps)
	lm, _ = b.reconcile()
	b.Expect(lm).To(BeNil())
	b.Expect(b.connector.host.steps).To(ContainElement("destroy ns-prod-m"))
	b.Expect(b.connector.host.steps).NotTo(ContainElement("shutdown ns-prod-m"))
}
