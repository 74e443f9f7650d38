// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/test/bench/host"
)

// TestDemo runs the README's two commands as a user does.
func TestDemo(t *testing.T) {
	g := NewWithT(t)
	run := func(target string) string {
		cmd := exec.Command("make", "-C", "../..", target)
		out, err := cmd.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), "make %s:\n%s", target, out)
		return string(out)
	}
	before := traces(g)
	t.Cleanup(func() { _ = exec.Command("make", "-C", "../..", "demo-down").Run() })

	out := run("demo")
	t.Log(out)
	g.Expect(out).To(MatchRegexp(`worker01\s+rhel-host-02\s+Running\s+True\s+default-my-cluster-worker01`))
	g.Expect(out).To(ContainSubstring("FWCFG bytes="))
	g.Expect(out).To(ContainSubstring("make demo-down"))

	run("demo-down")
	g.Expect(filepath.Join(host.DefaultDir, "demo")).NotTo(BeADirectory())
	g.Expect(traces(g)).To(Equal(before))
	g.Expect(run("demo-down")).To(ContainSubstring("not up"))
}

// traces lists what the demo could leave behind on the machine.
func traces(g Gomega) []string {
	mounts, err := os.ReadFile("/proc/self/mounts")
	g.Expect(err).NotTo(HaveOccurred())
	var found []string
	for line := range strings.SplitSeq(string(mounts), "\n") {
		if strings.Contains(line, "caplv") {
			found = append(found, line)
		}
	}
	for _, command := range [][]string{{"ip", "-br", "link"}, {"ip", "netns", "list"}, {"pgrep", "-a", "libvirtd|virtlogd|etcd|kube-apiserver|capi-core"}} {
		// pgrep's exit status says that it found nothing.
		out, _ := exec.Command(command[0], command[1:]...).Output()
		found = append(found, string(out))
	}
	return found
}
