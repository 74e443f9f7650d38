// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/bench/host"
	"github.com/caplv/caplv/test/playbooks"
)

const (
	// bareImage has libvirt's packages and nothing of CAPLV. That packages are installed is tested by the demo and in test/playbooks.
	bareImage     = "debian12-libvirt"
	bootstrapTime = 10 * time.Minute
)

// newBareWorld brings up a host that only root's key opens. The operator has that key in a Secret, and knows nothing of the host.
func newBareWorld(t *testing.T) *world {
	t.Helper()
	w := newNamespace(t)
	h, err := suite.hosts.UpBare(t.Context(), w.namespace, bareImage)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.useHost(h)
	w.create(&corev1.Secret{ObjectMeta: w.meta("host-root"), Data: map[string][]byte{infrav1.SSHPrivateKeySecretKey: hostKey(w)}})
	return w
}

// bareHost is the object of a host that is to be set up. Nothing else is given: neither its key nor that of the account.
func (w *world) bareHost(uri string) *infrav1.LibvirtHost {
	lh := w.libvirtHost(uri, "")
	lh.Spec.Bootstrap = &infrav1.HostBootstrap{
		User: "root", SecretRef: infrav1.LocalSecretReference{Name: "host-root"}, Bridges: []string{"br0"},
	}
	if strings.HasSuffix(uri, "/system") {
		lh.Spec.Bootstrap.Bridges = nil
	}
	return lh
}

// expectHostCondition waits for a condition of the host, as long as an onboarding may take.
func (w *world) expectHostCondition(conditionType, want string) *infrav1.LibvirtHost {
	w.t.Helper()
	var lh *infrav1.LibvirtHost
	w.g.Eventually(func(g Gomega) {
		lh = &infrav1.LibvirtHost{}
		g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "host"}, lh)).To(Succeed())
		g.Expect(condition(lh, conditionType)).To(Equal(want), "conditions: %v", summary(lh))
	}, bootstrapTime, poll).Should(Succeed())
	return lh
}

// settled lists a host once everything that starts by itself after boot has.
func (w *world) settled() playbooks.Listing {
	w.t.Helper()
	w.g.Eventually(func() string { return w.onHost("systemctl is-system-running || :") }, time.Minute, poll).
		Should(Or(HavePrefix("running"), HavePrefix("degraded")))
	listing, err := playbooks.List(w.t.Context(), w.host)
	w.g.Expect(err).NotTo(HaveOccurred())
	return listing
}

// expectOffboarded deletes the LibvirtHost and waits until it is gone, and the host as it was.
func (w *world) expectOffboarded(before playbooks.Listing) {
	w.t.Helper()
	w.g.Expect(suite.cp.Client().Delete(w.t.Context(), w.lhost)).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		lh := &infrav1.LibvirtHost{}
		err := suite.cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(w.lhost), lh)
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "error %v, conditions: %v", err, summary(lh))
	}, bootstrapTime, poll).Should(Succeed())
	w.g.Eventually(func() string { return strings.Join(w.settled().Since(before), "\n") }, 30*time.Second, time.Second).Should(BeEmpty())
}

// expectBootstrapped waits until a run has set the host up and the host is ready, and checks what is told of it.
func (w *world) expectBootstrapped() *infrav1.LibvirtHost {
	w.t.Helper()
	lh := w.expectHostCondition(infrav1.BootstrappedCondition, "True/"+infrav1.BootstrappedReason)
	w.g.Expect(lh.Status.HostKeyFingerprint).To(Equal(w.host.Fingerprint), "the key of first contact is recorded")
	run := lh.Status.Bootstrap.Run
	w.g.Expect(run).To(And(HaveField("Phase", infrav1.RunPhase("Succeeded")), HaveField("Backend", lh.Spec.Bootstrap.Backend)))
	w.g.Expect(run.Changed).To(BeNumerically(">", 0))
	w.g.Expect(lh.Status.Bootstrap.RolesVersion).NotTo(BeEmpty())
	lh = w.expectHostCondition(infrav1.HostReadyCondition, "True/"+infrav1.HostReadyReason)
	if lh.Status.Setup != nil && lh.Status.Setup.Mode == infrav1.HostModeSession {
		w.g.Expect(condition(lh, infrav1.SessionHardenedCondition)).To(Equal("True/" + infrav1.SessionHardenedReason))
	}
	return lh
}

// runsAMachine has a machine run and go. Its image comes from an HTTPS server, through the operator.
func (w *world) runsAMachine(spec func(*infrav1.LibvirtMachineSpec)) {
	w.t.Helper()
	w.stageFrom(serveImage(w.t), infrav1.DeliveryPush)
	w.comesAndGoes(spec)
}

// pullsAnImage has a machine run and go. Its image comes from an HTTPS server, which the host trusts and asks by itself.
func (w *world) pullsAnImage() {
	w.t.Helper()
	image := serveImageTo(w.t, w.host)
	w.onHost("cat >>/usr/lib/ssl/cert.pem <<'PEM'\n" + string(image.certificate) + "PEM")
	w.stageFrom(image, infrav1.DeliveryPull)
	w.comesAndGoes(nil)
}

// comesAndGoes has a machine run, whose image a run of Ansible has staged, and go.
func (w *world) comesAndGoes(spec func(*infrav1.LibvirtMachineSpec)) {
	w.t.Helper()
	lm := w.libvirtMachine("worker01")
	if spec != nil {
		spec(&lm.Spec)
	}
	w.createMachine(lm)
	lm = w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")
	w.g.Expect(condition(lm, infrav1.BaseImageStagedCondition)).To(Equal("True/" + infrav1.BaseImageStagedReason))
	w.g.Expect(w.expectHost("True/HostReady").Status.BaseImages).To(ConsistOf(And(
		HaveField("VolumeName", infrav1.ResourceName(imageName)), HaveField("Run.Phase", infrav1.RunPhase("Succeeded")))))
	w.deleteMachine("worker01")
	w.expectGone("worker01")
}

// checkMadeKey checks the Secret that the operator has made.
func (w *world) checkMadeKey() {
	w.t.Helper()
	secret := &corev1.Secret{}
	w.g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "host-ssh"}, secret)).To(Succeed())
	w.g.Expect(secret.Data).To(HaveKey(infrav1.SSHPrivateKeySecretKey))
	public := strings.Fields(string(secret.Data[infrav1.SSHPublicKeySecretKey]))
	w.g.Expect(w.onHost("cat /home/" + host.Account + "/.ssh/authorized_keys")).To(ContainSubstring(public[1]))
}

// TestWhatEndsDuringABootstrapEndsNothingElse kills the sidecar in the middle of a run, has the host die in the next, and kills the operator in the
// last.
func TestWhatEndsDuringABootstrapEndsNothingElse(t *testing.T) {
	w := newBareWorld(t)
	w.lhost = w.bareHost(w.host.SessionURI())
	w.create(w.lhost)
	first := w.expectProgress()

	suite.sidecar.Kill()
	<-suite.sidecar.Done()
	w.g.Eventually(func(g Gomega) {
		lh := &infrav1.LibvirtHost{}
		g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(w.lhost), lh)).To(Succeed())
		g.Expect(condition(lh, infrav1.BootstrappedCondition)).To(
			Or(Equal("False/"+infrav1.RunnerUnavailableReason), Equal("False/"+infrav1.BootstrapLostReason)), "conditions: %v", summary(lh))
	}, time.Minute, poll).Should(Succeed())
	w.g.Expect(suite.sidecar.Start(t.Context())).To(Succeed())
	var second *infrav1.LibvirtHost
	w.g.Eventually(func() string {
		second = w.expectProgress()
		return second.Status.Bootstrap.Run.Key
	}, bootstrapTime, poll).ShouldNot(Equal(first.Status.Bootstrap.Run.Key), "a run that is lost is begun again")

	setLink := func(state string) error { return w.host.InNetwork(t.Context(), "ip", "link", "set", "br0", state) }
	w.g.Expect(setLink("down")).To(Succeed())
	t.Cleanup(func() { _ = w.host.InNetwork(context.Background(), "ip", "link", "set", "br0", "up") })
	lh := w.expectHostCondition(infrav1.BootstrappedCondition, "False/"+infrav1.UnreachableReason)
	w.g.Expect(lh.Status.Bootstrap.Run.FailedTask).NotTo(BeEmpty())
	w.g.Expect(setLink("up")).To(Succeed())
	var third *infrav1.LibvirtHost
	w.g.Eventually(func() string {
		third = w.expectProgress()
		return third.Status.Bootstrap.Run.Key
	}, bootstrapTime, poll).ShouldNot(Equal(second.Status.Bootstrap.Run.Key), "a host that comes back is set up")

	suite.operator.Kill()
	<-suite.operator.Done()
	w.g.Expect(suite.operator.Start(t.Context())).To(Succeed())
	lh = w.expectHostCondition(infrav1.BootstrappedCondition, "True/"+infrav1.BootstrappedReason)
	w.g.Expect(lh.Status.Bootstrap.Run.Key).To(Equal(third.Status.Bootstrap.Run.Key), "the restarted operator has gone on with the same run")
	w.expectHost("True/HostReady")
	w.g.Expect(w.eventReasons("LibvirtHost", "host")).To(ContainElements(infrav1.BootstrapRunningReason, infrav1.BootstrappedReason))
}

// expectProgress waits until a run works on the host and says how far it is.
func (w *world) expectProgress() *infrav1.LibvirtHost {
	w.t.Helper()
	var lh *infrav1.LibvirtHost
	w.g.Eventually(func(g Gomega) {
		lh = &infrav1.LibvirtHost{}
		g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(w.lhost), lh)).To(Succeed())
		g.Expect(condition(lh, infrav1.BootstrappedCondition)).To(Equal("False/"+infrav1.BootstrapRunningReason), "conditions: %v", summary(lh))
		g.Expect(conditions.GetMessage(lh, infrav1.BootstrappedCondition)).To(MatchRegexp(`task \d+`))
	}, bootstrapTime, poll).Should(Succeed())
	return lh
}

// TestABootstrapThatCannotWorkSaysWhyAndRecovers breaks what a bootstrap needs, one after the other, and mends it.
func TestABootstrapThatCannotWorkSaysWhyAndRecovers(t *testing.T) {
	t.Parallel()
	w := newBareWorld(t)
	// An account that may become root with a password.
	const password = "correct horse battery"
	w.onHost("useradd -m -s /bin/bash -G sudo admin; echo 'admin:" + password + "' | chpasswd; mkdir -m 700 ~admin/.ssh; " +
		"cp ~/.ssh/authorized_keys ~admin/.ssh/; chown -R admin: ~admin/.ssh")
	lh := w.bareHost(w.host.SessionURI())
	lh.Spec.Bootstrap.User = "admin"
	lh.Spec.Bootstrap.SecretRef.Name = "host-admin"
	lh.Spec.HostKeyFingerprint = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	w.lhost = lh
	w.create(lh)
	// Each mends what the one before was about.
	w.expectHostCondition(infrav1.BootstrappedCondition, "False/"+infrav1.SecretNotFoundReason)

	root := &corev1.Secret{}
	w.g.Expect(suite.cp.Client().Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "host-root"}, root)).To(Succeed())
	admin := &corev1.Secret{ObjectMeta: w.meta("host-admin"), Data: root.Data}
	w.create(admin)
	w.expectHostCondition(infrav1.BootstrappedCondition, "False/"+infrav1.HostKeyMismatchReason)

	w.changeHost(func(lh *infrav1.LibvirtHost) { lh.Spec.HostKeyFingerprint = w.host.Fingerprint })
	lh = w.expectHostCondition(infrav1.BootstrappedCondition, "False/"+infrav1.BootstrapFailedReason)
	w.g.Expect(conditions.GetMessage(lh, infrav1.BootstrappedCondition)).To(ContainSubstring("become-password"))

	w.changeHost(func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.Port = 2222 })
	w.expectHostCondition(infrav1.BootstrappedCondition, "False/"+infrav1.UnreachableReason)

	admin.Data = map[string][]byte{infrav1.SSHPrivateKeySecretKey: root.Data[infrav1.SSHPrivateKeySecretKey], infrav1.BecomePasswordSecretKey: []byte(password)}
	w.g.Expect(suite.cp.Client().Update(t.Context(), admin)).To(Succeed())
	w.changeHost(func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.Port = 0 })
	lh = w.expectHostCondition(infrav1.BootstrappedCondition, "True/"+infrav1.BootstrappedReason)
	w.expectNoSecret(password)
	w.g.Expect(lh.Status.Bootstrap.Run.FailedTask).To(BeEmpty())
}

// expectNoSecret looks for a secret wherever it must not be: logs, what runs have left, and objects.
func (w *world) expectNoSecret(secret string) {
	w.t.Helper()
	for _, dir := range []string{suite.sidecar.ArtifactsDir(), suite.sidecar.WorkDir()} {
		w.g.Expect(filesWith(w.t, dir, secret)).To(BeEmpty())
	}
	for _, log := range []string{suite.sidecar.LogPath(), suite.operator.LogPath()} {
		content, err := os.ReadFile(log)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(strings.Contains(string(content), secret)).To(BeFalse(), log)
	}
	objects, err := suite.cp.Kubectl(w.t.Context(), "-n", w.namespace, "get", "libvirthosts,libvirtmachines,events", "-o", "yaml")
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(strings.Contains(objects, secret)).To(BeFalse(), "objects")
}

// tellsOfDrift changes on the host what the roles have set up, has it told, and then repaired.
func (w *world) tellsOfDrift() {
	w.t.Helper()
	w.onHost("rm /etc/sudoers.d/caplv")
	w.changeHost(func(lh *infrav1.LibvirtHost) { lh.Annotations = map[string]string{infrav1.CheckNowAnnotation: "1"} })
	lh := w.expectHostCondition(infrav1.DriftedCondition, "True/"+infrav1.DriftedReason)
	w.g.Expect(conditions.GetMessage(lh, infrav1.DriftedCondition)).To(ContainSubstring("The account may run the helper"))
	w.g.Expect(w.onHost("ls /etc/sudoers.d")).NotTo(ContainSubstring("caplv"), "a check changes nothing")

	w.changeHost(func(lh *infrav1.LibvirtHost) {
		lh.Spec.Bootstrap.DriftPolicy = infrav1.DriftRepair
		lh.Annotations = map[string]string{infrav1.CheckNowAnnotation: "2"}
	})
	w.expectHostCondition(infrav1.DriftedCondition, "False/"+infrav1.InSyncReason)
	w.g.Expect(w.onHost("ls /etc/sudoers.d")).To(ContainSubstring("caplv"))
	w.expectHost("True/HostReady")
}
