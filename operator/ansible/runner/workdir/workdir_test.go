// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package workdir

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/ansible"
)

func root(t *testing.T) Root {
	t.Helper()
	g := NewWithT(t)
	dir, err := os.MkdirTemp("", "caplv") //nolint:usetesting // The name of a test's directory is too long for sockets.
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r, err := Open(dir)
	g.Expect(err).NotTo(HaveOccurred())
	return r
}

func TestCreate(t *testing.T) {
	g := NewWithT(t)
	r := root(t)
	d, err := r.Create(map[string]any{"caplv_a": []string{"{{ x }}"}, "caplv_n": 1}, []ansible.Host{
		{Name: "a", Address: "A.example.com", Port: 22, User: "root", HostKeys: []string{"t 1", "t 2"}, PrivateKey: "key a"},
		{Name: "b", Address: "::1", Port: 2222, User: "admin", HostKeys: []string{"t 3"}, PrivateKey: "key b\n", BecomePassword: "p",
			Variables: map[string]any{"caplv_a": map[string]any{"k": "v", "n": nil}}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.ReadFile(d.KnownHosts())).To(BeEquivalentTo("a.example.com t 1\na.example.com t 2\n[::1]:2222 t 3\n"))
	g.Expect(os.ReadFile(d.keyFile(0))).To(BeEquivalentTo("key a\n"))
	g.Expect(os.ReadFile(d.keyFile(1))).To(BeEquivalentTo("key b\n"))
	inventory, err := os.ReadFile(d.Inventory())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(inventory).To(MatchJSON(strings.ReplaceAll(`{"all": {
		"vars": {"caplv_a": [{"__ansible_unsafe": "{{ x }}"}], "caplv_n": 1},
		"hosts": {
			"a": {"ansible_host": {"__ansible_unsafe": "A.example.com"}, "ansible_port": 22, "ansible_user": {"__ansible_unsafe": "root"},
				"ansible_connection": "ssh", "ansible_ssh_private_key_file": "DIR/keys/0"},
			"b": {"ansible_host": {"__ansible_unsafe": "::1"}, "ansible_port": 2222, "ansible_user": {"__ansible_unsafe": "admin"},
				"ansible_connection": "ssh", "ansible_ssh_private_key_file": "DIR/keys/1", "ansible_become_password": {"__ansible_unsafe": "p"},
				"caplv_a": {"k": {"__ansible_unsafe": "v"}, "n": null}}}}}`, "DIR", d.Path())))
	g.Expect(filepath.WalkDir(d.Path(), func(path string, entry fs.DirEntry, err error) error {
		g.Expect(err).NotTo(HaveOccurred())
		info, err := entry.Info()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()&0o077).To(BeZero(), path)
		return nil
	})).To(Succeed())
	g.Expect(d.Remove()).To(Succeed())
	g.Expect(d.Path()).NotTo(BeAnExistingFile())
}

func TestOpenRefusesPathsThatSSHCannotUse(t *testing.T) {
	for _, path := range []string{"relative", "/with space", "/" + strings.Repeat("x", maxRoot)} {
		_, err := Open(path)
		NewWithT(t).Expect(err).To(HaveOccurred(), path)
	}
}

func TestOpenMakesAnOpenDirectoryPrivate(t *testing.T) {
	g := NewWithT(t)
	dir, err := os.MkdirTemp("", "caplv") //nolint:usetesting // The name of a test's directory is too long for sockets.
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = os.RemoveAll(dir) }()
	g.Expect(os.Chmod(dir, 0o777)).To(Succeed())
	r, err := Open(dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.Marker()).To(Equal(dir + "/private/"))
}

func TestSweepRemovesBatchesAlone(t *testing.T) {
	g := NewWithT(t)
	r := root(t)
	_, err := r.Create(nil, nil)
	g.Expect(err).NotTo(HaveOccurred())
	other := filepath.Join(r.path, "other")
	g.Expect(os.Mkdir(other, 0o700)).To(Succeed())
	g.Expect(r.Sweep()).To(Equal(1))
	g.Expect(os.ReadDir(r.path)).To(HaveLen(1))
	g.Expect(other).To(BeADirectory())
}
