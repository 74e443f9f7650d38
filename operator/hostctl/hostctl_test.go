// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostctl_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/hostconn"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/setup"
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
	changed, err := hostctl.New(r).Stage(t.Context(), hostctl.StageRequest{
		Name: "vm-1", Ephemeral: true, Size: "80%", File: "ignition.json", Data: []byte(secret),
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(changed).To(BeTrue())
	g.Expect(r.command).To(Equal("exec env LC_ALL=C sudo -n /usr/libexec/caplv/caplv-hostctl"))
	g.Expect(r.request).To(Equal("caplv-hostctl/1\nstage\nname=vm-1\nephemeral=yes\nsize=80%\nfile=ignition.json\nbytes=20\nsha256=" +
		hex.EncodeToString(digest[:]) + "\n\n" + secret))

	r.result.Stdout = []byte("staged=unchanged\n")
	changed, err = hostctl.New(r).Stage(t.Context(), hostctl.StageRequest{Name: "vm-1"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(changed).To(BeFalse())
	g.Expect(r.request).To(Equal("caplv-hostctl/1\nstage\nname=vm-1\nephemeral=no\n\n"))

	_, err = hostctl.New(r).Stage(t.Context(), hostctl.StageRequest{Name: "vm-1", Owner: hostctl.OwnerCaller})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.request).To(Equal("caplv-hostctl/1\nstage\nname=vm-1\nephemeral=no\nowner=caller\n\n"))

	g.Expect(hostctl.New(r).Remove(t.Context(), "vm-1")).To(Succeed())
	g.Expect(r.request).To(Equal("caplv-hostctl/1\nremove\nname=vm-1\n\n"))

	r.result.Stdout = []byte("version=1\ntmpfs=yes\n")
	_, err = hostctl.New(r).Probe(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.request).To(Equal("caplv-hostctl/1\nprobe\n\n"))
	g.Expect(r.command).To(HaveSuffix("exec env LC_ALL=C sudo -n /usr/libexec/caplv/caplv-hostctl'"))
}

func TestAProbeBringsBackWhatTheRolesHaveRecorded(t *testing.T) {
	facts := setup.Facts{RolesVersion: "1.2.3", Mode: setup.ModeSession, Account: "caplv"}
	line := "facts=" + base64.StdEncoding.EncodeToString([]byte(`{"version":"1.2.3","mode":"session","account":"caplv"}`)) + "\n"
	for _, row := range []struct {
		name   string
		result hostconn.Result
		want   setup.Facts
		code   hostctl.Code
		text   string
	}{
		{"a host in order", hostconn.Result{Stdout: []byte("Welcome\n" + line + "version=1\n")}, facts, "", ""},
		{"a host that the roles have not set up", hostconn.Result{Stdout: []byte("facts=\nversion=1\n")}, setup.Facts{}, "", ""},
		{"a file that is broken", hostconn.Result{Stdout: []byte("facts=e30\nversion=1\n")}, setup.Facts{}, "", ""},
		{"an account whose login replaces the shell", hostconn.Result{Stdout: []byte("version=1\n")}, setup.Facts{}, "", ""},
		{"a helper of another version", hostconn.Result{Stdout: []byte(line + "version=2\n")}, facts, hostctl.CodeHelperOutdated,
			`the helper answered "version=2" to a probe; it is not of this version; run playbooks/onboard_host.yml`},
		{"no helper", hostconn.Result{Stdout: []byte(line), Stderr: []byte("sudo: x: command not found\n"), ExitCode: 1}, facts, hostctl.CodeHelperMissing,
			"run playbooks/onboard_host.yml"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := hostctl.New(&recorder{result: row.result}).Probe(t.Context())
			g.Expect(got).To(Equal(row.want))
			g.Expect(hostctl.CodeOf(err)).To(Equal(row.code))
			if row.code != "" {
				g.Expect(err).To(MatchError(ContainSubstring(row.text)))
			}
		})
	}
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
		"data without a file":      {Name: "a", Data: []byte("x")},
		"too much data":            {Name: "a", File: "x", Data: make([]byte, 64<<20+1)},
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
		{"sudo is missing", "bash: line 1: exec: sudo: not found\n", 127, hostctl.CodeHelperMissing, "run playbooks/onboard_host.yml"},
		{"sudo wants a password", "sudo: a password is required\n", 1, hostctl.CodeHelperNotPermitted, "a password is required"},
		{"sudo is missing, says env", "env: 'sudo': No such file or directory\n", 127, hostctl.CodeHelperMissing, "not installed"},
		{"sudo warns, and the helper fails", "sudo: unable to resolve host h: Name or service not known\ncaplv-hostctl: not-ours: /run/caplv/vm\n",
			1, hostctl.CodeNotOurs, "/run/caplv/vm"},
		{"sudo has no terminal", "sudo: a terminal is required to read the password\n", 1, hostctl.CodeHelperNotPermitted, "a terminal is required"},
		{"sudo refuses", "Sorry, user caplv is not allowed to execute '/usr/libexec/caplv/caplv-hostctl' as root on h.\n",
			1, hostctl.CodeHelperNotPermitted, "does not let"},
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
	_, err := hostctl.New(&recorder{err: broken}).Probe(t.Context())
	g.Expect(err).To(MatchError(broken))
}

func TestAnAnswerThatIsNoneIsAnError(t *testing.T) {
	g := NewWithT(t)
	r := &recorder{result: hostconn.Result{Stdout: []byte("Welcome\nstaged=created\n")}}
	changed, err := hostctl.New(r).Stage(t.Context(), hostctl.StageRequest{Name: "vm"})
	g.Expect(err).NotTo(HaveOccurred(), "a login that greets does not matter")
	g.Expect(changed).To(BeTrue())
	r.result.Stdout = []byte("Welcome\n")
	_, err = hostctl.New(r).Stage(t.Context(), hostctl.StageRequest{Name: "vm"})
	g.Expect(hostctl.CodeOf(err)).To(Equal(hostctl.CodeUnknown))
}

// FuzzFailure reads whatever a host could say. What comes out is a code, and a text that a condition can hold.
func FuzzFailure(f *testing.F) {
	f.Add("caplv-hostctl: busy: x", 1)
	f.Add("sudo: \xff\n", 127)
	f.Fuzz(func(t *testing.T, stderr string, exit int) {
		if exit == 0 {
			return
		}
		err := hostctl.New(&recorder{result: hostconn.Result{ExitCode: exit, Stderr: []byte(stderr)}}).Remove(t.Context(), "vm")
		if hostctl.CodeOf(err) == "" {
			t.Fatalf("%q in status %d has no code", stderr, exit)
		}
		if text := err.Error(); len(text) > 1024 || !utf8.ValidString(text) || strings.Contains(text, "\n") {
			t.Fatalf("%q was made of %q", text, stderr)
		}
	})
}

// FuzzAnswers reads whatever a helper that ended well could have written. Only the lines of the protocol are a success, and
// what is reported of any other fits into a condition.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{
		"version=1\ntmpfs=yes\n", "version=2\n", "staged=created\n", "staged=unchanged\n", "Welcome\nstaged=created\n",
		"staged=created\nstaged=unchanged\n", "staged=created\r\n", " staged=created", "", "\x00\xff\n", "removed=yes\n",
		"facts=e30=\nversion=1\n", "facts=%%\nversion=2\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stdout string) {
		client := hostctl.New(&recorder{result: hostconn.Result{Stdout: []byte(stdout)}})
		lines := strings.Split(stdout, "\n")
		_, probeErr := client.Probe(t.Context())
		if (probeErr == nil) != slices.Contains(lines, "version=1") {
			t.Errorf("the answer %q to a probe gave the error %v", stdout, probeErr)
		}
		changed, stageErr := client.Stage(t.Context(), hostctl.StageRequest{Name: "vm"})
		created, unchanged := slices.Index(lines, "staged=created"), slices.Index(lines, "staged=unchanged")
		if (stageErr == nil) != (created >= 0 || unchanged >= 0) {
			t.Errorf("the answer %q to a request to stage gave the error %v", stdout, stageErr)
		}
		if want := created >= 0 && (unchanged < 0 || created < unchanged); changed != want {
			t.Errorf("the answer %q to a request to stage was read as changed: %v", stdout, changed)
		}
		for _, err := range []error{probeErr, stageErr} {
			if err == nil {
				continue
			}
			if code := hostctl.CodeOf(err); code != hostctl.CodeUnknown && code != hostctl.CodeHelperOutdated {
				t.Errorf("%v has the code %q", err, code)
			}
			if text := err.Error(); len(text) > 2048 || !utf8.ValidString(text) || strings.Contains(text, "\n") {
				t.Errorf("%q was made of %q", text, stdout)
			}
		}
	})
}
