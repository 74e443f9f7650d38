// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package remediation_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// fall makes the Node unhealthy once Cluster API knows it.
func (b *bench) fall() {
	b.t.Helper()
	b.Eventually(func() (string, error) { return b.machine.Status.NodeRef.Name, b.read(b.machine) }, 2*soon, poll).Should(Equal(b.node.Name))
	b.setNodeReady(corev1.ConditionFalse)
}

func TestAPowerCycleMakesAMachineHealthy(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.check(&infrav1.RemediationStrategy{})
	b.fall()
	rem := b.existing()
	b.Expect(rem.Spec.Strategy).To(Equal(infrav1.RemediationStrategy{Type: "PowerCycle", RetryLimit: new(int32(1)), TimeoutSeconds: 600}), "these are the defaults")
	message := b.expectCondition(rem, infrav1.RemediatingCondition, "True/RestartingDomain")
	b.Expect(message).To(ContainSubstring("domain " + b.node.Name + " is asked to be started again (PowerCycle), in attempt 1 of 2"))
	b.expectCondition(b.machine, clusterv1.MachineHealthCheckSucceededCondition, "False/UnhealthyNode")
	b.expectCondition(b.machine, clusterv1.MachineExternallyRemediatedCondition, "False/RestartingDomain")

	b.serve(rem, 1)
	b.expectCondition(rem, infrav1.RemediatingCondition, "True/WaitingForHealth")
	b.expectCondition(b.machine, clusterv1.MachineExternallyRemediatedCondition, "False/WaitingForHealth")
	b.setNodeReady(corev1.ConditionTrue)
	b.expectGone(rem)
	b.expectCondition(b.machine, clusterv1.MachineHealthCheckSucceededCondition, "True/HealthCheckSucceeded")
	b.expectCondition(b.machine, clusterv1.MachineExternallyRemediatedCondition, "")
	b.Expect(b.read(b.lmachine)).To(Succeed())
	b.Expect(b.lmachine.Annotations).NotTo(HaveKey(infrav1.RestartRequestAnnotation))
	b.Expect(b.machine.DeletionTimestamp.IsZero()).To(BeTrue())
}

func TestAMachineThatNothingHelpsIsReplacedByItsMachineSet(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.machineSet()
	b.check(&infrav1.RemediationStrategy{RetryLimit: new(int32(1)), TimeoutSeconds: 3})
	b.fall()
	rem := b.existing()
	b.serve(rem, 1)
	b.serve(rem, 2)
	message := b.expectGivenBack(rem, infrav1.GivenBackToOwnerReason)
	b.Expect(message).To(And(ContainSubstring("MachineSet workers"), ContainSubstring("still unhealthy 3s after attempt 2 of 2")))
	b.expectReplaced()
}

func TestAMachineIsReplacedWithoutARemediation(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.machineSet()
	b.check(nil)
	b.fall()
	b.expectReplaced()
}

// expectGivenBack waits for the reason, which another one may follow at once when the Machine is being deleted.
func (b *bench) expectGivenBack(rem *infrav1.LibvirtRemediation, reason string) string {
	b.t.Helper()
	var message string
	b.Eventually(func() (string, error) {
		err := b.read(rem)
		for _, c := range rem.Status.Conditions {
			if c.Type == infrav1.RemediatingCondition && c.Reason == reason {
				message = c.Message
				return reason, err
			}
		}
		return "", err
	}, soon, 10*time.Millisecond).Should(Equal(reason))
	return message
}

// expectReplaced waits until the Machine is gone, with its Node and its LibvirtMachine, and there is another.
func (b *bench) expectReplaced() {
	b.t.Helper()
	b.expectGone(b.machine)
	b.expectGone(b.lmachine)
	b.expectGone(b.node)
	b.Eventually(func() ([]clusterv1.Machine, error) {
		list := &clusterv1.MachineList{}
		err := b.c.List(b.t.Context(), list, client.InNamespace(b.namespace))
		return list.Items, err
	}, soon, poll).Should(ConsistOf(HaveField("Spec.InfrastructureRef.Kind", "StandInMachine")))
}

// TestAMachineOf5SpotIsDeleted has an owner that knows nothing of remediation.
func TestAMachineOf5SpotIsDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(m *clusterv1.Machine, _ *infrav1.LibvirtMachine) {
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "5spot.finos.org/v1alpha1", Kind: "ScheduledMachine", Name: "m", UID: "s", Controller: new(true)}}
	})
	b.check(&infrav1.RemediationStrategy{Type: "Restart", RetryLimit: new(int32(0)), TimeoutSeconds: 3})
	b.fall()
	rem := b.existing()
	b.serve(rem, 1)
	message := b.expectGivenBack(rem, infrav1.MachineDeletingReason)
	b.Expect(message).To(ContainSubstring("no owner replaces it: it is still unhealthy 3s after attempt 1 of 1"))
	b.expectGone(b.machine)
	b.expectGone(b.lmachine)
	b.expectGone(b.node)
}

func TestAMachineThatNeverRanIsGivenBackAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(_ *clusterv1.Machine, lm *infrav1.LibvirtMachine) { lm.Status.Initialization.Provisioned = nil })
	b.remediation(infrav1.RemediationStrategy{}, b.machine)
	b.expectGone(b.machine)
}

// TestARequestIsTakenBack: a host that answers at last must not end a guest that is healthy.
func TestARequestIsTakenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	rem := b.remediation(infrav1.RemediationStrategy{}, b.machine)
	b.Eventually(func() (string, error) {
		return b.lmachine.Annotations[infrav1.RestartRequestAnnotation], b.read(b.lmachine)
	}, soon, poll).Should(HavePrefix("PowerCycle/"))
	b.setRestartRequest(infrav1.RestartRequestStatus{Request: b.lmachine.Annotations[infrav1.RestartRequestAnnotation], Message: "host h does not answer"})
	b.Eventually(func() string { return b.expectCondition(rem, infrav1.RemediatingCondition, "True/RestartingDomain") }, soon, poll).
		Should(ContainSubstring("host h does not answer"))
	b.Expect(b.c.Delete(t.Context(), rem)).To(Succeed())
	b.expectGone(rem)
	b.Expect(b.read(b.lmachine)).To(Succeed())
	b.Expect(b.lmachine.Annotations).NotTo(HaveKey(infrav1.RestartRequestAnnotation))
}

func TestAPausedClusterIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.setPaused(new(true))
	rem := b.remediation(infrav1.RemediationStrategy{}, b.machine)
	b.expectCondition(rem, clusterv1.PausedCondition, "True/Paused")
	b.Expect(b.read(b.lmachine)).To(Succeed())
	b.Expect(b.lmachine.Annotations).NotTo(HaveKey(infrav1.RestartRequestAnnotation))
	b.setPaused(nil)
	b.expectCondition(rem, infrav1.RemediatingCondition, "True/RestartingDomain")
}

func (b *bench) setPaused(paused *bool) {
	b.t.Helper()
	b.Expect(b.read(b.cluster)).To(Succeed())
	base := b.cluster.DeepCopy()
	b.cluster.Spec.Paused = paused
	b.Expect(b.c.Patch(b.t.Context(), b.cluster, client.MergeFrom(base))).To(Succeed())
}

func TestNothingIsDoneForAMachineThatIsNotMeant(t *testing.T) {
	t.Parallel()
	t.Run("one of the same name that was created since", func(t *testing.T) {
		b := newBench(t, nil)
		former := b.machine.DeepCopy()
		former.UID = "former"
		rem := b.remediation(infrav1.RemediationStrategy{}, former)
		b.expectCondition(rem, infrav1.RemediatingCondition, "False/MachineNotFound")
		b.Expect(b.read(b.lmachine)).To(Succeed())
		b.Expect(b.lmachine.Annotations).NotTo(HaveKey(infrav1.RestartRequestAnnotation))
		b.Expect(b.c.Delete(t.Context(), rem)).To(Succeed())
		b.expectGone(rem)
	})
	t.Run("one of another provider", func(t *testing.T) {
		b := newBench(t, func(m *clusterv1.Machine, _ *infrav1.LibvirtMachine) {
			m.Spec.InfrastructureRef.Kind = "StandInMachine"
		})
		rem := b.remediation(infrav1.RemediationStrategy{}, b.machine)
		b.expectCondition(rem, infrav1.RemediatingCondition, "False/NotALibvirtMachine")
		b.Expect(b.read(b.machine)).To(Succeed())
		b.Expect(b.machine.DeletionTimestamp.IsZero()).To(BeTrue())
	})
}

func TestStrategiesAreValidated(t *testing.T) {
	t.Parallel()
	for strategy, ok := range map[string]bool{
		"{}": true, "{type: PowerCycle}": true, "{type: Restart, retryLimit: 0, timeoutSeconds: 1}": true, "{retryLimit: 10, timeoutSeconds: 86400}": true,
		"{type: Reboot}": false, "{retryLimit: -1}": false, "{retryLimit: 11}": false, "{timeoutSeconds: 0}": false, "{timeoutSeconds: 86401}": false,
	} {
		err := cp.Apply(t.Context(), []byte("apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1\nkind: LibvirtRemediationTemplate\n"+
			"metadata: {name: valid, namespace: default}\nspec: {template: {spec: {strategy: "+strategy+"}}}\n"))
		NewWithT(t).Expect(err == nil).To(Equal(ok), "%s: %v", strategy, err)
	}
}
