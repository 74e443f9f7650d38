// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosthelper

import (
	"bufio"
	"os"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
)

const payload = "{\"ignition\":{}}\n\x00\xff binary, without a newline at the end"

func TestProbeReportsTheVersionAndTmpfs(t *testing.T) {
	g := NewWithT(t)
	s := newSandbox(t)
	g.Expect(s.send(request("probe"))).To(Equal(result{Stdout: "version=1\ntmpfs=yes\n"}))
	g.Expect(s.tree()).To(BeEmpty())
}

func TestStageAndRemove(t *testing.T) {
	for _, row := range []struct {
		name    string
		request string
		want    []string
	}{
		{"a file in a directory", stage(payload, "name=vm-1", "ephemeral=no", "size=", "owner=root"), []string{
			"d 711 caplv ", "d 711 caplv/vm-1 ", "f 600 caplv/vm-1/ignition.json "}},
		{"a file on a tmpfs of a given size", stage(payload, "name=vm-1", "ephemeral=yes", "size=8M"), []string{
			"d 711 caplv ", "d 711 caplv/vm-1 ", "f 600 caplv/vm-1/ignition.json ",
			" /run/caplv/vm-1 rw,nosuid,nodev,noexec,relatime - tmpfs caplv-vm-1 rw,size=8192k,mode=711"}},
		{"a tmpfs without a file", request("stage", "name=vm-1", "ephemeral=yes", "size=16m", "file=", "bytes=0", "sha256="), []string{
			"d 711 caplv ", "d 711 caplv/vm-1 ",
			" /run/caplv/vm-1 rw,nosuid,nodev,noexec,relatime - tmpfs caplv-vm-1 rw,size=16384k,mode=711"}},
		{"a directory without a file", request("stage", "name=vm-1", "ephemeral=no"), []string{
			"d 711 caplv ", "d 711 caplv/vm-1 "}},
		{"an empty file", stage("", "name=vm-1", "ephemeral=no"), []string{
			"d 711 caplv ", "d 711 caplv/vm-1 ", "f 600 caplv/vm-1/ignition.json "}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			s := newSandbox(t)
			g.Expect(s.send(row.request)).To(Equal(result{Stdout: "staged=created\n"}))
			tree := strings.Split(strings.TrimSuffix(s.tree(), "\n"), "\n")
			g.Expect(tree).To(HaveLen(len(row.want)))
			for i, want := range row.want {
				// A user namespace adds the owner to the options of a tmpfs.
				g.Expect(tree[i]).To(HavePrefix(want))
			}

			before := s.sh("find /run/caplv -mindepth 1 -printf '%p %i %T@\n'")
			g.Expect(s.send(row.request)).To(Equal(result{Stdout: "staged=unchanged\n"}))
			g.Expect(s.sh("find /run/caplv -mindepth 1 -printf '%p %i %T@\n'")).To(Equal(before), "the second request changed something")

			g.Expect(s.send(request("remove", "name=vm-1"))).To(Equal(result{Stdout: "removed=yes\n"}))
			g.Expect(s.tree()).To(Equal("d 711 caplv \n"))
			g.Expect(s.send(request("remove", "name=vm-1"))).To(Equal(result{Stdout: "removed=absent\n"}))
		})
	}
}

func TestStageKeepsBytesAndReplacesOtherContent(t *testing.T) {
	g := NewWithT(t)
	s := newSandbox(t)
	g.Expect(s.send(stage(payload, "name=vm", "ephemeral=yes"))).To(Equal(result{Stdout: "staged=created\n"}))
	g.Expect(s.sh("cat /run/caplv/vm/ignition.json")).To(Equal(payload))
	g.Expect(s.send(stage("other", "name=vm", "ephemeral=yes"))).To(Equal(result{Stdout: "staged=created\n"}))
	g.Expect(s.sh("cat /run/caplv/vm/ignition.json")).To(Equal("other"))
	g.Expect(s.sh("ls -A /run/caplv /run/caplv/vm; grep -c /run/caplv/ /proc/self/mountinfo")).To(
		Equal("/run/caplv:\nvm\n\n/run/caplv/vm:\nignition.json\n1\n"))
}

func TestRemoveOfAHostThatWasNeverUsedMakesNothing(t *testing.T) {
	g := NewWithT(t)
	s := newSandbox(t)
	g.Expect(s.send(request("remove", "name=vm"))).To(Equal(result{Stdout: "removed=absent\n"}))
	g.Expect(s.tree()).To(BeEmpty())
}

func TestRemoveTakesWhatQEMUAndKilledRequestsLeft(t *testing.T) {
	for _, ephemeral := range []string{"ephemeral=yes", "ephemeral=no"} {
		t.Run(ephemeral, func(t *testing.T) {
			g := NewWithT(t)
			s := newSandbox(t)
			g.Expect(s.send(stage(payload, "name=vm", ephemeral))).To(HaveField("Exit", 0))
			s.sh(`cd /run/caplv; touch vm/vm-root.qcow2 vm/.partial.abcdef "vm/a b*" .vm.abcdef .vm2.abcdef`)
			g.Expect(s.send(request("remove", "name=vm"))).To(Equal(result{Stdout: "removed=yes\n"}))
			g.Expect(s.tree()).To(HavePrefix("d 711 caplv \nf "))
			g.Expect(s.sh("ls -A /run/caplv")).To(Equal(".vm2.abcdef\n"), "the other machine's file is not ours to delete")
		})
	}
}

func TestRemoveFindsFilesUnderTheMount(t *testing.T) {
	g := NewWithT(t)
	s := newSandbox(t)
	g.Expect(s.send(stage(payload, "name=vm", "ephemeral=no"))).To(HaveField("Exit", 0))
	g.Expect(s.send(stage(payload, "name=vm", "ephemeral=yes"))).To(Equal(result{Stdout: "staged=created\n"}))
	g.Expect(s.send(request("remove", "name=vm"))).To(Equal(result{Stdout: "removed=yes\n"}))
	g.Expect(s.tree()).To(Equal("d 711 caplv \n"))
}

func TestRemoveOfABusyTmpfsKeepsItsFiles(t *testing.T) {
	g := NewWithT(t)
	s := newSandbox(t)
	g.Expect(s.send(stage(payload, "name=vm", "ephemeral=yes"))).To(HaveField("Exit", 0))
	cmd := s.command("sh", "-c", "cd /run/caplv/vm && echo ready && exec cat")
	stdin, err := cmd.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	stdout, err := cmd.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	g.Expect(bufio.NewReader(stdout).ReadString('\n')).To(Equal("ready\n"))

	before := s.tree()
	r := s.send(request("remove", "name=vm"))
	g.Expect(r).To(Equal(result{Stderr: "caplv-hostctl: busy: the tmpfs on /run/caplv/vm is in use\n", Exit: 1}))
	g.Expect(s.tree()).To(Equal(before))

	g.Expect(stdin.Close()).To(Succeed())
	g.Expect(cmd.Wait()).To(Succeed())
	g.Expect(s.send(request("remove", "name=vm"))).To(Equal(result{Stdout: "removed=yes\n"}))
}

func TestRequestsAtTheSameTimeMountOnce(t *testing.T) {
	g := NewWithT(t)
	s := newSandbox(t)
	var wg sync.WaitGroup
	results := make([]result, 8)
	for i := range results {
		wg.Go(func() { results[i] = s.send(stage(payload, "name=vm", "ephemeral=yes", "size=8M")) })
	}
	wg.Wait()
	created := 0
	for _, r := range results {
		g.Expect(r).To(HaveField("Exit", 0))
		if r.Stdout == "staged=created\n" {
			created++
		}
	}
	g.Expect(created).To(Equal(1))
	g.Expect(s.sh("ls -A /run/caplv; grep -c /run/caplv/ /proc/self/mountinfo")).To(Equal("vm\n1\n"))
}

func TestTheEnvironmentIsIgnored(t *testing.T) {
	g := NewWithT(t)
	s := newSandbox(t)
	s.sh(`mkdir /run/bin; printf '#!/bin/sh\ntouch /run/hijacked\n' >/run/bin/stat; cp /run/bin/stat /run/start; chmod 755 /run/bin/stat`)
	cmd := s.command(s.helper)
	cmd.Stdin = strings.NewReader(stage(payload, "name=vm", "ephemeral=no"))
	cmd.Env = append(os.Environ(), "PATH=/run/bin:"+os.Getenv("PATH"), "BASH_ENV=/run/start", "ENV=/run/start", "TMPDIR=/run/bin",
		"SHELLOPTS=xtrace", "LC_ALL=C.UTF-8", "LANGUAGE=de", "IFS=a", "BASH_FUNC_stat%%=() { touch /run/hijacked; }")
	g.Expect(s.run(cmd)).To(Equal(result{Stdout: "staged=created\n"}))
	g.Expect(s.sh("ls /run /run/bin")).To(Equal("/run:\nbin\ncaplv\nstart\n\n/run/bin:\nstat\n"))
}
