// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package playbooks

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/bench/controlplane"
)

// TestTheObjectsCanBeApplied writes objects in different ways and applies them to a real API server with the CRDs.
func TestTheObjectsCanBeApplied(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	h := suite.shared
	cp, err := controlplane.Start(t.Context(), controlplane.Options{
		Dir: t.TempDir(), CRDDir: filepath.Join(suite.runner.Repository, "operator", "config", "crd"),
		AddToScheme: []func(*runtime.Scheme) error{infrav1.AddToScheme},
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(cp.Stop()).To(Succeed()) })

	for name, row := range map[string]struct {
		vars  map[string]any
		label string
		uri   string
		mode  os.FileMode
	}{
		"the key stays where it is": {nil, "shared", "qemu+ssh://caplv@" + h.Address + "/session", 0o644},
		"the key is sealed": {map[string]any{
			"caplv_seal_secret": true, "caplv_private_key_file": suite.runner.KeyFile, "caplv_object_name": "sealed.example.com",
		}, "sealed.example.com", "qemu+ssh://caplv@" + h.Address + "/session", 0o600},
		"the operator reaches the host by IPv6": {map[string]any{
			"caplv_host_address": "2001:db8::1", "caplv_object_name": "six", "caplv_user": "_svc-1",
		}, "six", "qemu+ssh://_svc-1@[2001:db8::1]/session", 0o644},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			vars := variables(t, "session", row.vars)
			// The other roles have no part in it.
			first := onboard(t, h, vars, "--tags", "cluster_objects")
			g.Expect(first.Changed).NotTo(BeEmpty())
			if row.mode == 0o600 {
				g.Expect(onboard(t, h, vars, "--tags", "cluster_objects").Changed).To(BeEmpty(), "a second run changes nothing")
			}
			path := filepath.Join(suite.runner.Dir, "objects", row.label+".yaml")
			info, err := os.Stat(path)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(info.Mode().Perm()).To(Equal(row.mode))
			content, err := os.ReadFile(path)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cp.Kubectl(t.Context(), "apply", "--validate=strict", "-f", path)).Error().NotTo(HaveOccurred())

			applied := &infrav1.LibvirtHost{}
			g.Expect(cp.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: row.label}, applied)).To(Succeed())
			g.Expect(applied.Spec.URI).To(Equal(row.uri))
			g.Expect(applied.Spec.HostKeyFingerprint).To(Equal(h.Fingerprint))
			g.Expect(applied.Spec.VirtType).To(Equal(infrav1.VirtTypeQEMU))

			key, err := os.ReadFile(suite.runner.KeyFile)
			g.Expect(err).NotTo(HaveOccurred())
			if row.mode == 0o644 {
				g.Expect(string(content)).To(ContainSubstring("kubectl create secret generic " + applied.Spec.SecretRef.Name))
				return
			}
			secret := &corev1.Secret{}
			g.Expect(cp.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: applied.Spec.SecretRef.Name}, secret)).To(Succeed())
			g.Expect(secret.Type).To(Equal(corev1.SecretTypeSSHAuth))
			g.Expect(secret.Data[infrav1.SSHPrivateKeySecretKey]).To(Equal(key))
			g.Expect(first.Output).NotTo(ContainSubstring("ssh-privatekey: "), "the key is not printed")
		})
	}
}
