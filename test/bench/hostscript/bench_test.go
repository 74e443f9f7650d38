// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostscript

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/test/bench/host"
)

// bench has its own bridge and network, so that other benches of the machine neither disturb nor are disturbed.
type bench struct {
	*WithT
	t          *testing.T
	dir        string
	repository string
	hosts      *host.Bench
}

func newBench(t *testing.T) *bench {
	t.Helper()
	g := NewWithT(t)
	t.Setenv("CAPLV_BENCH_BRIDGE", "caplvtest0")
	t.Setenv("CAPLV_BENCH_SUBNET", "203.0.113.0/24")
	repository, err := filepath.Abs("../../..")
	g.Expect(err).NotTo(HaveOccurred())
	b := &bench{WithT: g, t: t, dir: filepath.Join(host.DefaultDir, "hostscript"), repository: repository}
	b.hosts, err = host.New(repository, b.dir)
	g.Expect(err).NotTo(HaveOccurred(), "run this as root")
	// What is cached is no trace of a host.
	g.Expect(host.Prepare(t.Context(), repository)).To(Succeed())
	t.Cleanup(func() {
		// The test's own context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		g.Expect(b.hosts.DownAll(ctx)).To(Succeed())
		_ = os.Remove(host.DefaultDir)
	})
	return b
}

// expectMachine checks that nothing was left. Tests that run beside these may have namespaces for a moment.
func (b *bench) expectMachine(before map[string][]string) {
	b.t.Helper()
	b.Eventually(b.machine, 20*time.Second, 100*time.Millisecond).Should(Equal(before))
}

// script is a call of host.sh.
func (b *bench) script(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(b.t.Context(), filepath.Join(b.repository, "test", "bench", "host.sh"), args...)
	cmd.Env = append(os.Environ(), "CAPLV_BENCH_DIR="+b.dir)
	return cmd
}

func (b *bench) up(name string) *host.Host {
	b.t.Helper()
	h, err := b.hosts.Up(b.t.Context(), name)
	b.Expect(err).NotTo(HaveOccurred())
	return h
}

// ssh runs a command with the account of a host.
func (b *bench) ssh(h *host.Host, stdin, command string) (string, error) {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), "ssh", "-i", filepath.Join(b.dir, "hosts", h.Name, "account_key"), "-o", "BatchMode=yes",
		"-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile="+h.KnownHosts(), "-o", "LogLevel=ERROR", host.Account+"@"+h.Address, command)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// machine is what hosts could leave behind on the machine.
func (b *bench) machine() map[string][]string {
	b.t.Helper()
	namespaces := []string{}
	processes, err := filepath.Glob("/proc/[0-9]*")
	b.Expect(err).NotTo(HaveOccurred())
	for _, process := range processes {
		// What has ended has no program any more, though its parent may not have read its status yet.
		if _, err := os.Readlink(process + "/exe"); err != nil {
			continue
		}
		for _, kind := range []string{"mnt", "net", "pid", "uts", "ipc"} {
			if target, err := os.Readlink(process + "/ns/" + kind); err == nil && !slices.Contains(namespaces, target) {
				namespaces = append(namespaces, target)
			}
		}
	}
	slices.Sort(namespaces)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	b.Expect(err).NotTo(HaveOccurred())
	return map[string][]string{
		"namespaces": namespaces,
		"mounts":     strings.Split(string(mounts), "\n"),
		"links":      entries("/sys/class/net"),
		"run":        entries("/run"),
		"bench":      entries(b.dir),
	}
}

// entries are the names in a directory, none if there is no directory.
func entries(dir string) []string {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	names := []string{}
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}
