// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/hostsetup"
)

func TestABareHostIsSetUpAndThenLeftAlone(t *testing.T) {
	b := newSetupBench(t, nil)
	request := b.untilRun()
	b.Expect(request.Playbook).To(Equal(ansible.OnboardHost))
	b.Expect(request.Check).To(BeFalse())
	b.Expect(request.SkipTags).To(ConsistOf("cluster_objects"))
	b.Expect(request.Hosts).To(ConsistOf(HaveField("Name", hostName)))
	b.Expect(request.Variables).To(And(HaveKeyWithValue("caplv_mode", "session"), HaveKeyWithValue("caplv_user", "caplv")))

	secret := &corev1.Secret{}
	b.Expect(b.r.Client.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: accountSecret}, secret)).To(Succeed())
	b.Expect(secret.Type).To(Equal(corev1.SecretTypeSSHAuth))
	b.Expect(secret.OwnerReferences).To(ConsistOf(HaveField("Name", key.Name)))
	b.Expect(secret.Labels).To(HaveKey("clusterctl.cluster.x-k8s.io/move"))
	public, err := hostsetup.PublicHalf(secret.Data[infrav1.SSHPrivateKeySecretKey])
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(string(secret.Data[infrav1.SSHPublicKeySecretKey])).To(HavePrefix(public))
	b.Expect(request.Variables["caplv_authorized_keys"]).To(ConsistOf(public))

	lh, _ := b.reconcile()
	b.Expect(lh.Status.HostKeyFingerprint).To(Equal(fingerprint), "the key of first contact is pinned before anything is sent")
	b.Expect(lh.Status.Bootstrap.Run).To(And(HaveField("Key", request.Key), HaveField("ID", "1"), HaveField("Attempt", int32(1))))
	b.backend.Task(request.Key, "Libvirt is installed", 34, 120)
	lh = b.until(infrav1.BootstrappedCondition, infrav1.BootstrapRunningReason)
	b.Eventually(func() string {
		lh, _ = b.reconcile()
		return conditions.GetMessage(lh, infrav1.BootstrappedCondition)
	}, patience).Should(ContainSubstring("task 34 of 120: Libvirt is installed"))
	b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(infrav1.WaitingForBootstrapReason))
	b.Expect(conditions.GetMessage(lh, infrav1.HostReadyCondition)).To(ContainSubstring("task 34 of 120"))
	b.Expect(conditions.GetReason(lh, infrav1.SessionHardenedCondition)).To(Equal(infrav1.SessionNotHardenedReason))
	b.Expect(b.connector.connects).To(Equal(1), "a host that is being set up is looked at once")

	b.connector.err = nil
	b.end(ansible.HostResult{Phase: ansible.Succeeded, OK: 110, Changed: 40, Skipped: 10})
	lh = b.until(infrav1.HostReadyCondition, infrav1.HostReadyReason)
	b.Expect(conditions.IsTrue(lh, infrav1.BootstrappedCondition)).To(BeTrue())
	b.Expect(conditions.IsTrue(lh, infrav1.SessionHardenedCondition)).To(BeTrue())
	b.Expect(conditions.Get(lh, infrav1.DriftedCondition)).To(BeNil())
	st := lh.Status.Bootstrap
	b.Expect(st.AppliedStateHash).To(Equal(st.Run.DesiredStateHash))
	b.Expect(*st).To(And(HaveField("RolesVersion", ansible.RolesVersion), HaveField("AnsibleVersion", "2.16.0")))
	b.Expect(st.Run).To(And(HaveField("Phase", infrav1.RunPhase("Succeeded")), HaveField("OK", int32(110)), HaveField("Changed", int32(40)), HaveField("Progress", "")))
	b.Expect(reasons(b.told())).To(Equal([]string{
		"Normal SSHKeyCreated", "Normal BootstrapQueued", "Normal WaitingForBootstrap", "Warning SessionNotHardened", "Normal BootstrapRunning",
		"Normal Bootstrapped", "Normal HostReady", "Normal SessionHardened",
	}))

	connects := b.connector.connects
	for range 5 {
		b.now = b.now.Add(24 * time.Hour)
		_, result := b.reconcile()
		b.Expect(result.RequeueAfter).To(BeZero())
	}
	b.Expect(b.connector.connects).To(Equal(connects), "an idle host sees no traffic")
	b.Expect(b.backend.Keys()).To(HaveLen(1))
}
