// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostctl_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/hostconn"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/setup"
)

// namespace is a transport to the real helper, in a mount namespace with an empty /run. There is no sudo in between, and what the
// roles have recorded is in another file.
type namespace struct {
	enter         []string
	helper, facts string
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	g := NewWithT(t)
	if os.Geteuid() != 0 {
		t.Fatal("the helper is for root: run this as root, or through hack/as-root.sh")
	}
	helper, err := filepath.Abs("../../roles/host_helper/files/caplv-hostctl")
	g.Expect(err).NotTo(HaveOccurred())
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", //nolint:noctx // It ends when its input does.
		"sh", "-c", "mount -n -t tmpfs -o mode=755 none /run && echo ready && exec cat")
	stdin, err := cmd.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	stdout, err := cmd.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	_, err = io.ReadFull(stdout, make([]byte, len("ready\n")))
	g.Expect(err).NotTo(HaveOccurred())
	return &namespace{enter: []string{"--target", strconv.Itoa(cmd.Process.Pid), "--mount", "--"}, helper: helper, facts: filepath.Join(t.TempDir(), "facts")}
}

// Exec implements hostctl.Transport.
func (n *namespace) Exec(ctx context.Context, command string, stdin io.Reader) (hostconn.Result, error) {
	command = strings.NewReplacer("sudo -n /usr/libexec/caplv/caplv-hostctl", n.helper, setup.File, n.facts).Replace(command)
	return n.run(ctx, stdin, "sh", "-c", command)
}

func (n *namespace) run(ctx context.Context, stdin io.Reader, argv ...string) (hostconn.Result, error) {
	cmd := exec.CommandContext(ctx, "nsenter", append(append([]string{}, n.enter...), argv...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		err = nil
	}
	return hostconn.Result{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: cmd.ProcessState.ExitCode()}, err
}

func TestTheHelperAndItsClientAgree(t *testing.T) {
	g := NewWithT(t)
	n := newNamespace(t)
	c := hostctl.New(n)
	ctx := t.Context()
	show := func(script string) string {
		r, err := n.run(ctx, nil, "sh", "-c", script)
		g.Expect(err).NotTo(HaveOccurred())
		return string(r.Stdout) + string(r.Stderr)
	}
	g.Expect(c.Probe(ctx)).To(Equal(setup.Facts{}))
	g.Expect(os.WriteFile(n.facts, []byte("{\n  \"mode\": \"session\",\n  \"version\": \"1.2.3\"\n}\n"), 0o600)).To(Succeed())
	g.Expect(c.Probe(ctx)).To(Equal(setup.Facts{Mode: setup.ModeSession, RolesVersion: "1.2.3"}))
	g.Expect(os.WriteFile(n.facts, bytes.Repeat([]byte(" "), setup.MaxSize+1), 0o600)).To(Succeed())
	g.Expect(c.Probe(ctx)).To(Equal(setup.Facts{}), "a file without an end is no failure")
	for _, row := range []hostctl.StageRequest{
		{Name: "vm"},
		{Name: "vm", File: "ignition.json", Data: []byte{}},
		{Name: "vm", File: "ignition.json", Data: []byte("a\n\nb\x00c\r\n")},
		{Name: "vm-1", Ephemeral: true},
		{Name: "vm-2", Ephemeral: true, Size: "8388608"},
		{Name: "vm-3", Ephemeral: true, Size: "8m", File: "ignition.json", Data: bytes.Repeat([]byte("x"), 1<<20)},
		{Name: "vm-4", Ephemeral: true, Size: "1%"},
	} {
		changed, err := c.Stage(ctx, row)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(changed).To(BeTrue())
		changed, err = c.Stage(ctx, row)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(changed).To(BeFalse(), "a second request finds everything there")
	}
	g.Expect(show("stat -c '%a %u %s' " + hostctl.Directory("vm") + "/ignition.json")).To(Equal("600 0 8\n"))
	g.Expect(show("grep -o 'caplv-vm-3.*size=[^ ,]*' /proc/self/mountinfo")).To(ContainSubstring("size=8192k"))

	_, err := c.Stage(ctx, hostctl.StageRequest{Name: "vm-3", File: "big", Data: make([]byte, 9<<20)})
	g.Expect(hostctl.CodeOf(err)).To(Equal(hostctl.CodeNoSpace), "%v", err)
	for _, name := range []string{"vm", "vm-1", "vm-2", "vm-3", "vm-4", "never-there"} {
		g.Expect(c.Remove(ctx, name)).To(Succeed())
	}
	g.Expect(show("ls -A /run/caplv; grep -c ' /run/caplv' /proc/self/mountinfo")).To(Equal("0\n"))

	g.Expect(show("ln -s /etc /run/caplv/vm")).To(BeEmpty())
	_, err = c.Stage(ctx, hostctl.StageRequest{Name: "vm"})
	g.Expect(hostctl.CodeOf(err)).To(Equal(hostctl.CodeNotOurs), "%v", err)
}
