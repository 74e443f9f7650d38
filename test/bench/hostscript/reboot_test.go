// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostscript

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestAHostThatRebootsKeepsItsDiskAndItsIdentity(t *testing.T) {
	b := newBench(t)
	b.up("h0")
	h := b.up("h1")
	// Its address is not the first that is free, and must be its own all the same.
	first, err := b.script("down", "h0").CombinedOutput()
	b.Expect(err).NotTo(HaveOccurred(), string(first))
	address, fingerprint := h.Address, h.Fingerprint
	const state = `hostname; cat /etc/machine-id /etc/marker 2>/dev/null; ls /run/marker 2>/dev/null; ` +
		`virsh -q -c qemu:///system pool-list --all --name; virsh -q -c qemu:///system net-list --all --name`
	before, err := b.ssh(h, "", state)
	b.Expect(err).NotTo(HaveOccurred(), before)
	b.Expect(h.Run(t.Context(), "sh", "-c", "echo written >/etc/marker; touch /run/marker")).To(Succeed())

	b.Expect(h.Reboot(t.Context())).To(Succeed())
	after, err := b.ssh(h, "", "cat /etc/marker; rm -f /etc/marker 2>/dev/null; test ! -e /run/marker && echo empty")
	b.Expect(err).NotTo(HaveOccurred(), after)
	b.Expect(after).To(Equal("written\nempty\n"))
	b.Expect(h.Run(t.Context(), "rm", "/etc/marker")).To(Succeed())
	b.Expect(b.ssh(h, "", state)).To(Equal(before))
	b.Expect(h.Address).To(Equal(address))
	key, err := b.ssh(h, "", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(key).To(ContainSubstring(fingerprint))

	down, err := b.script("down", "h1").CombinedOutput()
	b.Expect(err).NotTo(HaveOccurred(), string(down))
	again, err := b.script("reboot", "h1").CombinedOutput()
	b.Expect(err).To(HaveOccurred())
	b.Expect(string(again)).To(ContainSubstring("host h1 is not up"))
}

func TestAHostThatShutsDownHasEverythingOnItsDisk(t *testing.T) {
	b := newBench(t)
	h := b.up("h1")
	// systemd ends the service in order, which writes the file only then.
	b.Expect(h.Run(t.Context(), "systemd-run", "--quiet", "--unit=last-words", "bash", "-c",
		"trap 'echo written >/etc/marker; exit' TERM; while :; do sleep 0.1; done")).To(Succeed())
	out, err := b.script("stop", "h1").CombinedOutput()
	b.Expect(err).NotTo(HaveOccurred(), string(out))
	b.Expect(os.ReadFile(filepath.Join(b.dir, "hosts", "h1", "upper", "etc", "marker"))).To(BeEquivalentTo("written\n"))
	list, err := b.script("list").Output()
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(string(list)).To(HaveSuffix(" down\n"))
}
