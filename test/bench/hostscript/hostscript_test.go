// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostscript

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/test/bench/host"
)

func TestHostsThatComeUpAtOnceAreDistinctAndLeaveNothing(t *testing.T) {
	b := newBench(t)
	before := b.machine()
	b.Expect(before["bench"]).To(BeEmpty())

	hosts := make([]*host.Host, 4)
	errs := make([]error, len(hosts))
	var wg sync.WaitGroup
	for i := range hosts {
		wg.Go(func() { hosts[i], errs[i] = b.hosts.Up(t.Context(), fmt.Sprintf("h%d", i)) })
	}
	wg.Wait()
	seen := map[string]string{}
	for i, h := range hosts {
		b.Expect(errs[i]).NotTo(HaveOccurred())
		identity, err := b.ssh(h, "", "hostname; cat /etc/machine-id; virsh -c qemu:///system capabilities | grep -m1 '<uuid>'")
		b.Expect(err).NotTo(HaveOccurred(), identity)
		for _, fact := range append(strings.Split(strings.TrimSpace(identity), "\n"), h.Address, h.Fingerprint) {
			b.Expect(seen).NotTo(HaveKey(fact), "hosts %s and %s are the same", seen[fact], h.Name)
			seen[fact] = h.Name
		}
	}
	list, err := b.script("list").Output()
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(strings.Count(string(list), " up\n")).To(Equal(len(hosts)), string(list))

	b.Expect(hosts[0].Down(t.Context())).To(Succeed())
	b.Expect(b.ssh(hosts[1], "", "echo alive")).To(Equal("alive\n"))
	b.Expect(b.hosts.DownAll(t.Context())).To(Succeed())
	b.expectMachine(before)
	b.Expect(b.dir).NotTo(BeADirectory())
}

func TestDownWorksInAnyState(t *testing.T) {
	firstProcess := func(b *bench) int {
		content, err := os.ReadFile(filepath.Join(b.dir, "hosts", "h1", "pid"))
		b.Expect(err).NotTo(HaveOccurred())
		pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
		b.Expect(err).NotTo(HaveOccurred())
		return pid
	}
	for _, row := range []struct {
		name  string
		spoil func(b *bench)
	}{
		{"up", func(b *bench) { b.up("h1") }},
		{"never up", func(*bench) {}},
		{"down already", func(b *bench) { b.Expect(b.up("h1").Down(t.Context())).To(Succeed()) }},
		{"sshd and libvirtd stopped", func(b *bench) {
			h := b.up("h1")
			b.Expect(h.StopSSH(t.Context())).To(Succeed())
			b.Expect(h.StopLibvirt(t.Context())).To(Succeed())
		}},
		{"first process killed", func(b *bench) {
			b.up("h1")
			b.Expect(syscall.Kill(firstProcess(b), syscall.SIGKILL)).To(Succeed())
		}},
		{"state files lost", func(b *bench) {
			b.up("h1")
			for _, name := range []string{"pid", "address", "fingerprint"} {
				b.Expect(os.Remove(filepath.Join(b.dir, "hosts", "h1", name))).To(Succeed())
			}
		}},
		{"pid file with the number of another process", func(b *bench) {
			b.up("h1")
			b.Expect(os.WriteFile(filepath.Join(b.dir, "hosts", "h1", "pid"), []byte(strconv.Itoa(os.Getpid())), 0o600)).To(Succeed())
		}},
		{"interface deleted", func(b *bench) {
			h := b.up("h1")
			b.Expect(h.Run(t.Context(), "ip", "link", "del", "eth0")).To(Succeed())
		}},
		{"tmpfs mounted and in use, virtual machine running", func(b *bench) {
			h := b.up("h1")
			b.Expect(b.ssh(h, "caplv-hostctl/1\nstage\nname=vm\nephemeral=yes\nsize=4M\n\n", "sudo -n /usr/libexec/caplv/caplv-hostctl")).To(
				Equal("staged=created\n"))
			b.Expect(h.WriteFile(t.Context(), "/root/vm.xml", []byte(domain("vm", "bios", "")))).To(Succeed())
			b.Expect(h.Run(t.Context(), "virsh", "-c", "qemu:///system", "create", "/root/vm.xml")).To(Succeed())
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t)
			before := b.machine()
			row.spoil(b)
			out, err := b.script("down", "h1").CombinedOutput()
			b.Expect(err).NotTo(HaveOccurred(), string(out))
			b.Expect(entries(filepath.Join(b.dir, "hosts"))).To(BeEmpty())
			b.Expect(b.hosts.DownAll(t.Context())).To(Succeed())
			b.expectMachine(before)
		})
	}
}

func TestAnUpThatIsInterruptedLeavesNothing(t *testing.T) {
	b := newBench(t)
	before := b.machine()
	cmd := b.script("up", "h1")
	b.Expect(cmd.Start()).To(Succeed())
	b.Eventually(func() error {
		_, err := os.Stat(filepath.Join(b.dir, "hosts", "h1", "pid"))
		return err
	}, 30*time.Second, time.Millisecond).Should(Succeed())
	b.Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	b.Expect(cmd.Wait()).NotTo(Succeed())
	b.Expect(entries(filepath.Join(b.dir, "hosts"))).To(BeEmpty())
	b.Expect(b.hosts.DownAll(t.Context())).To(Succeed())
	b.expectMachine(before)
}

func TestDaemonsStopAndStart(t *testing.T) {
	b := newBench(t)
	h := b.up("h1")

	b.Expect(h.StopSSH(t.Context())).To(Succeed())
	_, err := net.DialTimeout("tcp", h.SSHAddress(), 5*time.Second)
	b.Expect(err).To(MatchError(syscall.ECONNREFUSED))
	b.Expect(h.StartSSH(t.Context())).To(Succeed())
	b.Expect(b.ssh(h, "", "echo back")).To(Equal("back\n"))

	b.Expect(h.StopLibvirt(t.Context())).To(Succeed())
	out, err := b.ssh(h, "", "virsh -c qemu:///system list")
	b.Expect(err).To(HaveOccurred())
	b.Expect(out).To(ContainSubstring("failed to connect to the hypervisor"))
	b.Expect(h.StartLibvirt(t.Context())).To(Succeed())
	out, err = b.ssh(h, "", "virsh -q -c qemu:///system pool-list; virsh -q -c qemu:///system net-list")
	b.Expect(err).NotTo(HaveOccurred(), out)
	b.Expect(strings.Fields(out)).To(Equal([]string{"default", "active", "yes", "default", "active", "yes", "yes"}))

	old := h.Fingerprint
	b.Expect(h.Rekey(t.Context())).To(Succeed())
	b.Expect(h.Fingerprint).To(And(HavePrefix("SHA256:"), Not(Equal(old))))
	scan, err := exec.CommandContext(t.Context(), "sh", "-c", "ssh-keyscan "+h.Address+" 2>/dev/null | ssh-keygen -lf -").Output()
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(string(scan)).To(ContainSubstring(" " + h.Fingerprint + " "))
}

func TestTheAccountMayUseLibvirtAndRunTheHelperAlone(t *testing.T) {
	b := newBench(t)
	h := b.up("h1")
	const helper = "sudo -n /usr/libexec/caplv/caplv-hostctl"
	b.Expect(b.ssh(h, "caplv-hostctl/1\nprobe\n\n", helper)).To(Equal("version=1\ntmpfs=yes\n"))
	for _, command := range []string{helper + " probe", "sudo -n id", "sudo -n /bin/bash " + strings.TrimPrefix(helper, "sudo -n ")} {
		out, err := b.ssh(h, "", command)
		b.Expect(err).To(HaveOccurred(), command)
		b.Expect(out).To(ContainSubstring("password is required"), command)
	}
}

func TestTheListingShowsWhatAMachineLeavesBehind(t *testing.T) {
	const virsh = "virsh -q -c qemu:///system "
	b := newBench(t)
	h := b.up("h1")
	b.Expect(h.WriteFile(t.Context(), "/opt/vm.xml", []byte(domain("vm", "bios", "")))).To(Succeed())
	before, err := h.Listing(t.Context())
	b.Expect(err).NotTo(HaveOccurred())
	for _, row := range []struct{ name, leave, clean string }{
		{"a domain", virsh + "define /opt/vm.xml", virsh + "undefine vm"},
		{"a pool", "mkdir /opt/pool; " + virsh + "pool-define-as p dir --target /opt/pool", virsh + "pool-undefine p"},
		{"a volume", virsh + "vol-create-as default v 1M", virsh + "vol-delete --pool default v"},
		{"a stopped network", virsh + "net-destroy default", virsh + "net-start default"},
		{"a file below /run/caplv", "touch /run/caplv/.x", "rm /run/caplv/.x"},
		{"a mount", "mkdir /run/caplv/m; mount -t tmpfs m /run/caplv/m", "umount /run/caplv/m; rmdir /run/caplv/m"},
		{"NVRAM", "touch /var/lib/libvirt/qemu/nvram/vm.fd", "rm /var/lib/libvirt/qemu/nvram/vm.fd"},
		{"a file in the account's home", "mkdir -p /home/caplv/.cache", "rmdir /home/caplv/.cache"},
		{"a temporary file", "touch /tmp/x", "rm /tmp/x"},
		{"shared memory", "touch /dev/shm/x", "rm /dev/shm/x"},
		{
			"a process of the account",
			"setpriv --reuid caplv --clear-groups sleep 600 >/dev/null 2>&1 </dev/null & echo $! >/opt/pid; until grep -q sleep /proc/$!/comm; do :; done",
			"kill $(cat /opt/pid); while grep -q sleep /proc/$(cat /opt/pid)/comm; do :; done 2>/dev/null",
		},
		{"an interface", "ip link add x type bridge", "ip link del x"},
	} {
		t.Run(row.name, func(t *testing.T) { expectListed(t, h, before, row.leave, row.clean) })
	}
}

// expectListed checks that the listing shows what a script leaves, and nothing when another has cleaned up.
func expectListed(t *testing.T, h *host.Host, before, leave, clean string) {
	g := NewWithT(t)
	g.Expect(h.Run(t.Context(), "sh", "-c", leave)).To(Succeed())
	g.Expect(h.Listing(t.Context())).NotTo(Equal(before))
	g.Expect(h.Run(t.Context(), "sh", "-c", clean)).To(Succeed())
	g.Expect(h.Listing(t.Context())).To(Equal(before))
}

func TestTheListingShowsWhatASessionLeavesBehind(t *testing.T) {
	const (
		account = "setpriv --reuid caplv --regid caplv --init-groups --reset-env "
		virsh   = account + "env XDG_RUNTIME_DIR=/run/user/$(id -u caplv) virsh -q -c qemu:///session "
		images  = "/home/caplv/.local/share/libvirt/images"
	)
	b := newBench(t)
	h, err := b.hosts.UpSession(t.Context(), "h1")
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(h.WriteFile(t.Context(), "/opt/vm.xml", []byte(domain("vm", "bios", "")))).To(Succeed())
	before, err := h.Listing(t.Context())
	b.Expect(err).NotTo(HaveOccurred())
	for _, row := range []struct{ name, leave, clean string }{
		{"a domain", virsh + "define /opt/vm.xml", virsh + "undefine vm"},
		{"a pool", virsh + "pool-create-as p dir --target " + images + "/..", virsh + "pool-destroy p"},
		{"a volume", virsh + "vol-create-as default v 1M", virsh + "vol-delete --pool default v"},
		{"NVRAM", "touch /home/caplv/.config/libvirt/qemu/nvram/vm_VARS.fd", "rm /home/caplv/.config/libvirt/qemu/nvram/vm_VARS.fd"},
		{"a log", account + "mkdir -p /home/caplv/.cache/libvirt/qemu/log; touch /home/caplv/.cache/libvirt/qemu/log/vm.log", "rm /home/caplv/.cache/libvirt/qemu/log/vm.log"},
		{"a state file", "touch /run/user/$(id -u caplv)/libvirt/qemu/run/vm.xml", "rm /run/user/$(id -u caplv)/libvirt/qemu/run/vm.xml"},
		{"a directory of a machine", "mkdir /home/caplv/.config/libvirt/qemu/lib/domain-1-vm", "rmdir /home/caplv/.config/libvirt/qemu/lib/domain-1-vm"},
	} {
		t.Run(row.name, func(t *testing.T) { expectListed(t, h, before, row.leave, row.clean) })
	}
}
