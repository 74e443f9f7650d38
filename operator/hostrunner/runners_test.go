// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostrunner

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/ansibletest"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/hostsetup"
)

// sshServer shows its key to whoever connects. It returns its port and the fingerprint of the key.
func sshServer(t *testing.T) (port int, fingerprint string) {
	t.Helper()
	g := NewWithT(t)
	pair, err := hostsetup.NewKeyPair("host")
	g.Expect(err).NotTo(HaveOccurred())
	signer, err := ssh.ParsePrivateKey(pair.Private)
	g.Expect(err).NotTo(HaveOccurred())
	config := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
		t.Error("a key was offered")
		return nil, nil
	}}
	config.AddHostKey(signer)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _, _, _ = ssh.NewServerConn(conn, config)
				_ = conn.Close()
			}()
		}
	}()
	_, text, err := net.SplitHostPort(listener.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	port, err = strconv.Atoi(text)
	g.Expect(err).NotTo(HaveOccurred())
	return port, ssh.FingerprintSHA256(signer.PublicKey())
}

func TestHowPlaybooksGetToAHost(t *testing.T) {
	port, fingerprint := sshServer(t)
	pair, err := hostsetup.NewKeyPair("root")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	const other = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for _, row := range []struct {
		name    string
		change  func(*infrav1.LibvirtHost, map[string][]byte)
		require bool
		want    string
	}{
		{"with a key", func(*infrav1.LibvirtHost, map[string][]byte) {}, false, ""},
		{"with the key that spec pins", func(lh *infrav1.LibvirtHost, _ map[string][]byte) { lh.Spec.HostKeyFingerprint = fingerprint }, true, ""},
		{"with the key that was recorded", func(lh *infrav1.LibvirtHost, _ map[string][]byte) { lh.Status.HostKeyFingerprint = fingerprint }, false, ""},
		{"on a port of its own", func(lh *infrav1.LibvirtHost, _ map[string][]byte) {
			lh.Spec.URI, lh.Spec.Bootstrap.Port = "qemu+ssh://caplv@127.0.0.1/session", int32(port)
		}, false, ""},
		{"by AWX, which has a credential", func(lh *infrav1.LibvirtHost, _ map[string][]byte) {
			lh.Spec.Bootstrap.Backend, lh.Spec.Bootstrap.SecretRef.Name = infrav1.BackendAWX, ""
		}, false, ""},
		{"not where another key is pinned", func(lh *infrav1.LibvirtHost, _ map[string][]byte) { lh.Spec.HostKeyFingerprint = other }, false, infrav1.HostKeyMismatchReason},
		{"not where another key was recorded", func(lh *infrav1.LibvirtHost, _ map[string][]byte) { lh.Status.HostKeyFingerprint = other }, false, infrav1.HostKeyMismatchReason},
		{"not to a key that only was recorded, where spec has to pin it", func(lh *infrav1.LibvirtHost, _ map[string][]byte) {
			lh.Status.HostKeyFingerprint = fingerprint
		}, true, infrav1.HostKeyNotPinnedReason},
		{"not without a Secret", func(lh *infrav1.LibvirtHost, _ map[string][]byte) { lh.Spec.Bootstrap.SecretRef.Name = "other" }, false, infrav1.SecretNotFoundReason},
		{"not without a name of one", func(lh *infrav1.LibvirtHost, _ map[string][]byte) { lh.Spec.Bootstrap.SecretRef.Name = "" }, false, infrav1.SecretNotFoundReason},
		{"not without a key in it", func(_ *infrav1.LibvirtHost, data map[string][]byte) { delete(data, infrav1.SSHPrivateKeySecretKey) }, false, infrav1.SecretNotFoundReason},
		{"not with something else in it", func(_ *infrav1.LibvirtHost, data map[string][]byte) {
			data[infrav1.SSHPrivateKeySecretKey] = []byte("secret nonsense")
		}, false, infrav1.InvalidPrivateKeyReason},
		{"not where nobody answers", func(lh *infrav1.LibvirtHost, _ map[string][]byte) { lh.Spec.Bootstrap.Port = 1 }, false, infrav1.UnreachableReason},
		{"not with a broken URI", func(lh *infrav1.LibvirtHost, _ map[string][]byte) { lh.Spec.URI = "x" }, false, infrav1.InvalidURIReason},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			lh := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "h"}}
			lh.Spec.URI = "qemu+ssh://caplv@127.0.0.1:" + strconv.Itoa(port) + "/session"
			lh.Spec.Bootstrap = &infrav1.HostBootstrap{User: "admin", SecretRef: infrav1.LocalSecretReference{Name: "root"}}
			data := map[string][]byte{infrav1.SSHPrivateKeySecretKey: pair.Private, infrav1.BecomePasswordSecretKey: []byte("hunter22\n")}
			row.change(lh, data)
			secrets := fake.NewClientBuilder().WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "root"}, Data: data}).Build()
			runners := &Runners{Secrets: secrets, RequireFingerprint: row.require}
			target, found, err := runners.Reach(t.Context(), lh)
			if row.want != "" {
				reason, message := hosts.Explain(err, "")
				g.Expect(reason).To(Equal(row.want), message)
				g.Expect(message).NotTo(ContainSubstring("nonsense"))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found).To(Equal(fingerprint))
			g.Expect(target).To(And(HaveField("Name", "h.default"), HaveField("Address", "127.0.0.1"), HaveField("Port", port), HaveField("User", "admin")))
			g.Expect(target.HostKeys).To(ConsistOf(HavePrefix("ssh-ed25519 ")))
			if lh.Spec.Bootstrap.Backend == infrav1.BackendAWX {
				g.Expect(target.PrivateKey + target.BecomePassword).To(BeEmpty())
				return
			}
			g.Expect(target.BecomePassword).To(Equal("hunter22"))
			g.Expect(strings.TrimSpace(target.PrivateKey)).To(Equal(strings.TrimSpace(string(pair.Private))))
			same, err := runners.Target(t.Context(), lh)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(same).To(Equal(target))
		})
	}
}

func TestWhoRunsPlaybooks(t *testing.T) {
	g := NewWithT(t)
	backend := ansibletest.New()
	runners := &Runners{Backends: map[infrav1.BootstrapBackend]BackendFunc{
		infrav1.BackendSidecar: func(context.Context, *infrav1.LibvirtHost) (ansible.Backend, error) { return backend, nil },
	}}
	lh := &infrav1.LibvirtHost{}
	lh.Spec.Bootstrap = &infrav1.HostBootstrap{}
	found, err := runners.Backend(t.Context(), lh)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(BeIdenticalTo(backend))

	lh.Spec.Bootstrap.Backend = infrav1.BackendAWX
	_, err = runners.Backend(t.Context(), lh)
	reason, _ := hosts.Explain(err, "")
	g.Expect(reason).To(Equal(infrav1.RunnerUnavailableReason))
	lh.Spec.Bootstrap.Backend = infrav1.BackendSidecar
	_, err = (&Runners{}).Backend(t.Context(), lh)
	_, message := hosts.Explain(err, "")
	g.Expect(message).To(ContainSubstring("--ansible-runner-socket is empty"))
}
