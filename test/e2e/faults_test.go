// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"io"
	"net"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

func TestDeletionWaitsForAHostThatCannotBeReached(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name       string
		breakHost  func(*world) error
		mendHost   func(*world) error
		wantReason string
	}{
		{"sshd is down",
			func(w *world) error { return w.host.StopSSH(w.t.Context()) },
			func(w *world) error { return w.host.StartSSH(w.t.Context()) },
			infrav1.UnreachableReason},
		{"libvirtd is down",
			func(w *world) error { return w.host.StopLibvirt(w.t.Context()) },
			func(w *world) error { return w.host.StartLibvirt(w.t.Context()) },
			infrav1.LibvirtUnavailableReason},
		{"virsh is missing",
			// A virsh that runs already would go on.
			func(w *world) error {
				return w.host.Run(w.t.Context(), "sh", "-c", "mv /usr/bin/virsh /usr/bin/virsh.away && { pkill -x virsh || true; }")
			},
			func(w *world) error { return w.host.Run(w.t.Context(), "mv", "/usr/bin/virsh.away", "/usr/bin/virsh") },
			infrav1.VirshMissingReason},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.expectHost("True/HostReady")
			lm := w.libvirtMachine("worker01")
			ephemeral(&lm.Spec)
			w.createMachine(lm)
			w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")

			w.g.Expect(row.breakHost(w)).To(Succeed())
			w.deleteMachine("worker01")
			lm = w.expectMachine("worker01", infrav1.CleanupStalledCondition, "True/"+row.wantReason)
			w.g.Expect(lm.Finalizers).To(ContainElement(infrav1.MachineFinalizer))
			w.g.Expect(condition(lm, infrav1.MachineReadyCondition)).To(Equal("False/" + infrav1.DeletingReason))
			w.g.Eventually(func() []string { return w.eventReasons("LibvirtMachine", "worker01") }, provisionTime, poll).Should(ContainElement(row.wantReason))

			w.g.Expect(row.mendHost(w)).To(Succeed())
			w.expectGone("worker01")
			w.expectListing(w.untouched)
		})
	}
}

func TestAHostThatCannotBeUsedSaysWhyAndRecovers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		// spoil makes the LibvirtHost unusable before it is created, and returns what mends it.
		spoil      func(w *world, lh *infrav1.LibvirtHost) (mend func())
		wantReason string
	}{
		{"the Secret does not exist", func(w *world, lh *infrav1.LibvirtHost) func() {
			lh.Spec.SecretRef.Name = "later"
			return func() { w.createSecret("later", w.host.PrivateKey) }
		}, infrav1.SecretNotFoundReason},
		{"the key is not authorized", func(w *world, lh *infrav1.LibvirtHost) func() {
			lh.Spec.SecretRef.Name = "other"
			w.createSecret("other", newKey(w, ""))
			return func() { w.replaceSecret("other", w.host.PrivateKey) }
		}, infrav1.UnauthorizedReason},
		{"the key is encrypted", func(w *world, lh *infrav1.LibvirtHost) func() {
			lh.Spec.SecretRef.Name = "other"
			w.createSecret("other", newKey(w, "secret words"))
			return func() { w.replaceSecret("other", w.host.PrivateKey) }
		}, infrav1.InvalidPrivateKeyReason},
		{"the host key is another one", func(w *world, lh *infrav1.LibvirtHost) func() {
			lh.Spec.HostKeyFingerprint = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
			return func() {
				w.changeHost(func(lh *infrav1.LibvirtHost) { lh.Spec.HostKeyFingerprint = w.host.Fingerprint })
			}
		}, infrav1.HostKeyMismatchReason},
		{"the server accepts and stays silent", func(w *world, lh *infrav1.LibvirtHost) func() {
			silent := newProxy(w)
			lh.Spec.URI = "qemu+ssh://caplv@" + silent.address() + "/system"
			return func() { silent.connectTo(w.host.SSHAddress()) }
		}, infrav1.TimeoutReason},
		{"the name does not resolve", func(w *world, lh *infrav1.LibvirtHost) func() {
			lh.Spec.URI = "qemu+ssh://caplv@no-such-host.invalid/system"
			return func() { w.changeHost(func(lh *infrav1.LibvirtHost) { lh.Spec.URI = w.host.URI() }) }
		}, infrav1.UnreachableReason},
		{"the host has no hardware virtualisation", func(w *world, lh *infrav1.LibvirtHost) func() {
			lh.Spec.VirtType = infrav1.VirtTypeKVM
			return func() { w.changeHost(func(lh *infrav1.LibvirtHost) { lh.Spec.VirtType = infrav1.VirtTypeQEMU }) }
		}, infrav1.VirtTypeUnsupportedReason},
		{"libvirtd is down", func(w *world, _ *infrav1.LibvirtHost) func() {
			w.g.Expect(w.host.StopLibvirt(w.t.Context())).To(Succeed())
			return func() { w.g.Expect(w.host.StartLibvirt(w.t.Context())).To(Succeed()) }
		}, infrav1.LibvirtUnavailableReason},
		{"the helper is missing", func(w *world, _ *infrav1.LibvirtHost) func() {
			const path = "/usr/libexec/caplv/caplv-hostctl"
			w.g.Expect(w.host.Run(w.t.Context(), "mv", path, path+".away")).To(Succeed())
			return func() { w.g.Expect(w.host.Run(w.t.Context(), "mv", path+".away", path)).To(Succeed()) }
		}, infrav1.HelperUnavailableReason},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.expectHost("True/HostReady")
			lh := w.libvirtHost(w.host.URI(), w.host.Fingerprint)
			mend := row.spoil(w, lh)
			w.replaceHost(lh)
			lm := w.libvirtMachine("worker01")
			w.createMachine(lm)

			w.expectHost("False/" + row.wantReason)
			w.expectMachine("worker01", infrav1.MachineReadyCondition, "False/"+row.wantReason)
			w.expectMachine("worker01", infrav1.HostAvailableCondition, "False/"+row.wantReason)
			w.g.Eventually(func() []string { return w.eventReasons("LibvirtHost", "host") }, provisionTime, poll).Should(ContainElement(row.wantReason))

			mend()
			w.expectHost("True/HostReady")
			w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")
			w.deleteMachine("worker01")
			w.expectGone("worker01")
		})
	}
}

func TestAChangedHostKeyIsRefusedUntilItIsPinnedAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.expectHost("True/HostReady")
	w.replaceHost(w.libvirtHost(w.host.URI(), ""))
	lh := w.expectHost("True/HostReady")
	w.g.Expect(lh.Status.HostKeyFingerprint).To(HavePrefix("SHA256:"))
	w.g.Expect(condition(lh, infrav1.HostKeyPinnedCondition)).To(Equal("True/" + infrav1.HostKeyRecordedReason))

	w.g.Expect(w.host.Rekey(t.Context())).To(Succeed())
	w.createMachine(w.libvirtMachine("worker01"))
	w.expectMachine("worker01", infrav1.MachineReadyCondition, "False/"+infrav1.HostKeyMismatchReason)

	w.changeHost(func(lh *infrav1.LibvirtHost) { lh.Spec.HostKeyFingerprint = w.host.Fingerprint })
	w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")
	w.deleteMachine("worker01")
	w.expectGone("worker01")
}

func TestAMachineThatLacksSomethingOnTheHostSaysWhatAndRecovers(t *testing.T) {
	t.Parallel()
	virsh := func(w *world, args ...string) {
		w.g.Expect(w.host.Run(w.t.Context(), append([]string{"virsh", "-c", "qemu:///system"}, args...)...)).To(Succeed())
	}
	for _, row := range []struct {
		name       string
		prepare    func(*infrav1.LibvirtMachineSpec)
		mend       func(*world)
		wantReason string
	}{
		{"the storage pool does not exist", func(s *infrav1.LibvirtMachineSpec) {
			s.RootDisk.StoragePool, s.RootDisk.BaseImagePool = "disks", "default"
		}, func(w *world) {
			w.g.Expect(w.host.Run(w.t.Context(), "mkdir", "-p", "/var/lib/libvirt/disks")).To(Succeed())
			virsh(w, "pool-define-as", "disks", "dir", "--target", "/var/lib/libvirt/disks")
		}, infrav1.PoolNotFoundReason},
		{"the base image does not exist", func(s *infrav1.LibvirtMachineSpec) {
			s.RootDisk.BaseImage = "later.qcow2"
		}, func(w *world) {
			w.g.Expect(w.host.Run(w.t.Context(), "cp", "/var/lib/libvirt/images/"+imageName, "/var/lib/libvirt/images/later.qcow2")).To(Succeed())
		}, infrav1.BaseImageNotFoundReason},
		{"the bridge does not exist", func(s *infrav1.LibvirtMachineSpec) {
			s.Network.Name = "br7"
		}, func(w *world) {
			w.g.Expect(w.host.Run(w.t.Context(), "ip", "link", "add", "br7", "type", "bridge")).To(Succeed())
		}, infrav1.BridgeNotFoundReason},
		{"the libvirt network is not active", func(s *infrav1.LibvirtMachineSpec) {
			s.Network.Type, s.Network.Name = infrav1.NetworkTypeNetwork, "default"
		}, func(w *world) { virsh(w, "net-start", "default") }, infrav1.NetworkInactiveReason},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.expectHost("True/HostReady")
			if row.wantReason == infrav1.NetworkInactiveReason {
				virsh(w, "net-destroy", "default")
			}
			lm := w.libvirtMachine("worker01")
			row.prepare(&lm.Spec)
			w.createMachine(lm)
			w.expectMachine("worker01", infrav1.MachineReadyCondition, "False/"+row.wantReason)
			w.g.Eventually(func() []string { return w.eventReasons("LibvirtMachine", "worker01") }, provisionTime, poll).Should(ContainElement(row.wantReason))
			row.mend(w)
			w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")
			w.deleteMachine("worker01")
			w.expectGone("worker01")
		})
	}
}

func (w *world) createSecret(name string, key []byte) {
	w.create(&corev1.Secret{ObjectMeta: w.meta(name), Data: map[string][]byte{infrav1.SSHPrivateKeySecretKey: key}})
}

func (w *world) replaceSecret(name string, key []byte) {
	secret := &corev1.Secret{ObjectMeta: w.meta(name)}
	w.g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	base := secret.DeepCopy()
	secret.Data[infrav1.SSHPrivateKeySecretKey] = key
	w.g.Expect(suite.cp.Client().Patch(w.t.Context(), secret, client.MergeFrom(base))).To(Succeed())
}

func (w *world) changeHost(change func(*infrav1.LibvirtHost)) {
	lh := &infrav1.LibvirtHost{ObjectMeta: w.meta("host")}
	w.g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(lh), lh)).To(Succeed())
	base := lh.DeepCopy()
	change(lh)
	w.g.Expect(suite.cp.Client().Patch(w.t.Context(), lh, client.MergeFrom(base))).To(Succeed())
}

// newKey is a private key that no host knows, encrypted if there is a passphrase.
func newKey(w *world, passphrase string) []byte {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	w.g.Expect(err).NotTo(HaveOccurred())
	var block *pem.Block
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(private, "")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(passphrase))
	}
	w.g.Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(block)
}

// proxy accepts connections and is silent until it is told whom to connect them to.
type proxy struct {
	listener net.Listener
	target   chan string
}

func newProxy(w *world) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.g.Expect(err).NotTo(HaveOccurred())
	p := &proxy{listener: l, target: make(chan string, 1)}
	w.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) connectTo(address string) { p.target <- address }

func (p *proxy) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	// A connection that arrives before the target is known stays silent until then; by that time its peer has given up.
	address := <-p.target
	p.target <- address
	out, err := net.Dial("tcp", address) //nolint:noctx // Ends with the test.
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	go func() { _, _ = io.Copy(out, conn) }()
	_, _ = io.Copy(conn, out)
}
