// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostctl_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/hostconn"
	"github.com/caplv/caplv/operator/hostctl"
)

// recorder is a transport that keeps what it was asked and gives a fixed answer.
type recorder struct {
	command, request string
	result           hostconn.Result
	err              error
}

func (r *recorder) Exec(_ context.Context, command string, stdin io.Reader) (hostconn.Result, error) {
	request, err := io.ReadAll(stdin)
	r.command, r.request = command, string(request)
	if err != nil {
		return hostconn.Result{}, err
	}
	return r.result, r.err
}

func TestARequestGoesToStandardInputAndNowhereElse(t *testing.T) {
	g := NewWithT(t)
	r := &recorder{result: hostconn.Result{Stdout: []byte("staged=created\n")}}
	secret := "{\"passwd\":\"hunter2\"}"
	digest := sha256.Sum256([]byte(secret))
	changed, err := hostctl.New(r).Stage(t.Context(), hostctl.StageRequest{Name: "vm-1", Ephemeral: true, Size: "80%", File: "ignition.json", Data: []byte(secret)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(changed).To(BeTrue())
	g.Expect(r.command).To(Equal("exec sudo -n /usr/libexec/caplv/caplv-hostctl"))
	g.Expect(r.request).To(Equal("caplv-hostctl/1\nstage\nname=vm-1\nephemeral=yes\nsize=80%\nfile=ignition.json\nbytes=20\nsha256=" +
		hex.EncodeToString(digest[:]) + "\n\n" + secret))

	r.result.Stdout = []byte("staged=unchanged\n")
	changed, err = hostctl.New(r).Stage(t.Context(), hostctl.StageRequest{Name: "vm-1"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(changed).To(BeFalse())
	g.Expect(r.request).To(Equal("caplv-hostctl/1\nstage\nname=vm-1\nephemeral=no\n\n"))

	g.Expect(hostctl.New(r).Remove(t.Context(), "vm-1")).To(Succeed())
	g.Expect(r.request).To(Equal("caplv-hostctl/1\nremove\nname=vm-1\n\n"))

	r.result.Stdout = []byte("version=1\ntmpfs=yes\n")
	g.Expect(hostctl.New(r).Probe(t.Context())).To(Succeed())
	g.Expect(r.request).To(Equal("caplv-hostctl/1\nprobe\n\n"))
	r.result.Stdout = []byte("version=2\n")
	g.Expect(hostctl.New(r).Probe(t.Context())).To(MatchError(ContainSubstring("not of this version")))
}

func TestBadValuesAreNeverSent(t *testing.T) {
	for name, request := range map[string]hostctl.StageRequest{
		"a name with a slash":      {Name: "../x"},
		"a name with a line break": {Name: "a\nb"},
		"an empty name":            {},
		"a size with an option":    {Name: "a", Ephemeral: true, Size: "1G,uid=0"},
		"a size over 100%":         {Name: "a", Ephemeral: true, Size: "101%"},
		"a file in a directory":    {Name: "a", File: "x/y"},
		"a hidden file":            {Name: "a", File: ".x"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := &recorder{}
			_, err := hostctl.New(r).Stage(t.Context(), request)
			g.Expect(hostctl.CodeOf(err)).To(Equal(hostctl.CodeBadValue))
			g.Expect(r.command).To(BeEmpty())
		})
	}
	g := NewWithT(t)
	r := &recorder{}
	g.Expect(hostctl.CodeOf(hostctl.New(r).Remove(t.Context(), "a/b"))).To(Equal(hostctl.CodeBadValue))
	g.Expect(r.command).To(BeEmpty())
}

func TestFailuresOnTheHostAreToldApart(t *testing.T) {
	for _, row := range []struct {
		name, stderr string
		exit         int
		want         hostctl.Code
		message      string
	}{
		{"the tmpfs is busy", "caplv-hostctl: busy: the tmpfs on /run/caplv/vm is in use\n", 1, hostctl.CodeBusy, "in use"},
		{"a warning comes first", "bash: warning: setlocale: LC_ALL: cannot change locale\ncaplv-hostctl: no-space: writing\n", 1, hostctl.CodeNoSpace, "writing"},
		{"the digest differs", "caplv-hostctl: digest-mismatch: the payload does not have the digest sha256\n", 1, hostctl.CodeDigestMismatch, "digest"},
		{"the helper is missing, says sudo", "sudo: /usr/libexec/caplv/caplv-hostctl: command not found\n", 1, hostctl.CodeHelperMissing, "not installed"},
		{"sudo is missing", "bash: line 1: exec: sudo: not found\n", 127, hostctl.CodeHelperMissing, "prepare the host again"},
		{"sudo wants a password", "sudo: a password is required\n", 1, hostctl.CodeHelperNotPermitted, "a password is required"},
		{"sudo refuses", "Sorry, user caplv is not allowed to execute '/usr/libexec/caplv/caplv-hostctl' as root on h.\n", 1, hostctl.CodeHelperNotPermitted, "does not let"},
		{"something else", "Killed\n", 137, hostctl.CodeUnknown, "status 137: Killed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			r := &recorder{result: hostconn.Result{ExitCode: row.exit, Stderr: []byte(row.stderr)}}
			err := hostctl.New(r).Remove(t.Context(), "vm")
			g.Expect(hostctl.CodeOf(err)).To(Equal(row.want))
			g.Expect(err).To(MatchError(ContainSubstring(row.message)))
		})
	}
}

func TestAnErrorOfTheTransportIsKept(t *testing.T) {
	g := NewWithT(t)
	broken := errors.New("broken")
	g.Expect(hostctl.New(&recorder{err: broken}).Probe(t.Context())).To(MatchError(broken))
}
