// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/awx"
	"github.com/caplv/caplv/test/bench/host"
	"github.com/caplv/caplv/test/playbooks"
)

// TestBareHostsAreSetUpThroughEachDoor sets four bare hosts up at the same time: three of them in session mode, from a shell, by a LibvirtHost, and
// by a LibvirtHost whose backend is AWX, which must end in the same; and one in system mode. Those of an object then run a machine, whose image the
// operator pushes or, with AWX, the host pulls, and are off-boarded.
func TestBareHostsAreSetUpThroughEachDoor(t *testing.T) {
	t.Parallel()
	shell, object, tower, system := newBareWorld(t), newBareWorld(t), newBareWorld(t), newBareWorld(t)
	before := map[*world]playbooks.Listing{}
	for _, w := range []*world{shell, object, tower, system} {
		before[w] = w.settled()
	}

	fromShell := shell.onboardFromShell()
	for _, w := range []*world{object, tower} {
		// All of them let the same key in.
		w.createHostSecret(hostKey(w))
		w.lhost = w.bareHost(w.host.SessionURI())
	}
	tower.useAWX()
	system.lhost = system.bareHost(system.host.URI())
	object.lhost.Spec.Bootstrap.OffboardOnDelete, system.lhost.Spec.Bootstrap.OffboardOnDelete = true, true
	for _, w := range []*world{object, tower, system} {
		w.create(w.lhost)
	}
	shell.g.Expect(<-fromShell).To(Succeed())
	// The operator knows the other ones as well, and its first look leaves traces of virsh in the account's home.
	shell.createHostSecret(hostKey(shell))
	shell.lhost = shell.libvirtHost(shell.host.SessionURI(), shell.host.Fingerprint)
	shell.create(shell.lhost)
	shell.expectHost("True/HostReady")
	for _, w := range []*world{object, tower, system} {
		w.expectBootstrapped()
	}
	system.checkMadeKey()
	system.g.Expect(system.expectHost("True/HostReady").Status.Bootstrap.AnsibleVersion).NotTo(BeEmpty())

	want := shell.changed(before[shell])
	shell.g.Expect(strings.Join(want, "\n")).To(And(ContainSubstring("/etc/sudoers.d/caplv"), ContainSubstring("NOPASSWD"), ContainSubstring(" default ")))
	object.g.Expect(cmp.Diff(want, object.changed(before[object]))).To(BeEmpty(), "-from the shell +by an object")
	tower.g.Expect(cmp.Diff(want, tower.changed(before[tower]))).To(BeEmpty(), "-from the shell +by AWX")

	object.tellsOfDrift()
	object.runsAMachine(nil)
	tower.pullsAnImage()
	object.expectOffboarded(before[object])
	system.runsAMachine(ephemeral)
	system.expectOffboarded(before[system])
}

// hostKey is the key that hosts of the tests let in.
func hostKey(w *world) []byte {
	w.t.Helper()
	key, err := os.ReadFile(suite.hosts.PrivateKeyFile())
	w.g.Expect(err).NotTo(HaveOccurred())
	return key
}

// onboardFromShell runs the playbook as a person would. How it ended is sent when it has.
func (w *world) onboardFromShell() <-chan error {
	w.t.Helper()
	runner := playbooks.Runner{Repository: suite.repository, Environment: ".venv", KeyFile: suite.hosts.PrivateKeyFile(), Dir: w.t.TempDir()}
	key, err := runner.PublicKey()
	w.g.Expect(err).NotTo(HaveOccurred())
	vars := map[string]any{
		"caplv_mode": "session", "caplv_virt_type": "qemu", "caplv_bridges": []string{"br0"},
		"caplv_authorized_keys": []string{strings.Join(strings.Fields(key)[:2], " ")},
	}
	done := make(chan error, 1)
	go func() {
		_, err := runner.Run(w.t.Context(), "onboard_host.yml", []*host.Host{w.host}, playbooks.Options{Vars: vars})
		done <- err
	}()
	return done
}

// useAWX has the host set up by an AWX that has it in its inventory.
func (w *world) useAWX() {
	w.t.Helper()
	inventory := filepath.Join(w.t.TempDir(), "hosts")
	line := fmt.Sprintf("host.%s ansible_host=%s ansible_user=root\n", w.namespace, w.host.Address)
	w.g.Expect(os.WriteFile(inventory, []byte(line), 0o600)).To(Succeed())
	server := awx.Start(w.t, inventory, suite.hosts.PrivateKeyFile())
	w.create(&corev1.Secret{ObjectMeta: w.meta("awx"), Data: map[string][]byte{
		infrav1.AWXTokenSecretKey: []byte(server.Token), infrav1.AWXCASecretKey: server.CA,
	}})
	b := w.lhost.Spec.Bootstrap
	b.Backend, b.SecretRef = infrav1.BackendAWX, infrav1.LocalSecretReference{}
	b.AWX = &infrav1.AWXBackend{URL: server.URL, SecretRef: infrav1.LocalSecretReference{Name: "awx"}}
}

// changed is everything that is different on the host since a listing, its packages, what sudo allows the account, and its pools.
func (w *world) changed(before playbooks.Listing) []string {
	w.t.Helper()
	session := "XDG_RUNTIME_DIR=/run/user/$(id -u " + host.Account + ")"
	told := w.onHost("dpkg-query -W; sudo -l -U " + host.Account + " | grep NOPASSWD; " +
		"runuser -u " + host.Account + " -- env " + session + " virsh -c qemu:///session pool-list --all")
	return append(w.settled().Since(before), strings.Split(told, "\n")...)
}
