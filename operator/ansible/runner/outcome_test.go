// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/runner/events"
	"github.com/caplv/caplv/operator/ansible/runner/process"
)

func TestOutcome(t *testing.T) {
	counted := events.Host{Counted: true, Done: 3}
	failed := events.Host{Counted: true, Stopped: true, Result: ansible.HostResult{Failed: 1, FailedTask: "T"}}
	for _, tt := range []struct {
		name     string
		host     events.Host
		end      ending
		phase    ansible.Phase
		innocent bool
	}{
		{"it was counted and nothing failed", counted, ending{complete: true}, ansible.Succeeded, false},
		{"a task failed", failed, ending{complete: true, exit: process.Exit{Code: 2}}, ansible.Failed, false},
		{"a task failed, and the process is killed later", failed, ending{exit: process.Exit{Signal: "killed"}}, ansible.Failed, false},
		{"the host was unreachable", events.Host{Result: ansible.HostResult{Unreachable: 1}}, ending{complete: true, exit: process.Exit{Code: 4}}, ansible.Unreachable, false},
		{"another host failed", events.Host{Counted: true, Stopped: true}, ending{complete: true, exit: process.Exit{Code: 2}}, ansible.Failed, true},
		{"another host failed at the end", counted, ending{complete: true, exit: process.Exit{Code: 2}}, ansible.Succeeded, false},
		{"nothing was done on it", events.Host{}, ending{complete: true}, ansible.Failed, false},
		{"the playbook cannot be read", events.Host{}, ending{exit: process.Exit{Code: 4}}, ansible.Failed, false},
		{"nothing is told, though the exit code is 0", events.Host{Done: 3}, ending{}, ansible.Lost, false},
		{"nothing at all is told, though the exit code is 0", events.Host{}, ending{}, ansible.Lost, false},
		{"it ended in the middle", events.Host{Done: 3}, ending{exit: process.Exit{Code: 1}}, ansible.Lost, false},
		{"it was killed", events.Host{Done: 3}, ending{exit: process.Exit{Signal: "killed"}}, ansible.Lost, false},
		{"the deadline came during a task", events.Host{Done: 3, Working: true}, ending{ended: ansible.TimedOut}, ansible.TimedOut, false},
		{"the deadline came while it waited for others", events.Host{Done: 3}, ending{ended: ansible.TimedOut}, ansible.TimedOut, true},
		{"it was canceled", events.Host{Done: 3, Working: true}, ending{ended: ansible.Canceled}, ansible.Canceled, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			phase, _ := outcome(&tt.host, tt.end)
			g.Expect(phase).To(Equal(tt.phase))
			g.Expect(innocent(&tt.host, phase)).To(Equal(tt.innocent))
		})
	}
}

func TestRunsOfOneKind(t *testing.T) {
	base := ansible.Request{Key: "a", Playbook: ansible.OnboardHost, Deadline: 1, Variables: map[string]any{"caplv_mode": "system"}, SkipTags: []string{"x", "y"},
		Hosts: []ansible.Host{{Name: "h", Address: "h", Port: 22, PrivateKey: "k", Variables: map[string]any{"caplv_token": "t"}}}}
	for _, tt := range []struct {
		name         string
		change       func(*ansible.Request)
		kind, digest bool
	}{
		{"differ in nothing", func(*ansible.Request) {}, true, true},
		{"differ in their hosts", func(r *ansible.Request) { r.Hosts[0].Name = "other" }, true, false},
		{"differ in how to log in", func(r *ansible.Request) { r.Hosts[0].PrivateKey = "new" }, true, true},
		{"differ in a secret of a host", func(r *ansible.Request) { r.Hosts[0].Variables = map[string]any{"caplv_token": "new"} }, true, true},
		{"differ in a variable", func(r *ansible.Request) { r.Variables = map[string]any{"caplv_mode": "session"} }, false, false},
		{"differ in the order of tags", func(r *ansible.Request) { r.SkipTags = []string{"y", "x"} }, true, false},
		{"differ in check mode", func(r *ansible.Request) { r.Check = true }, false, false},
		{"differ in the deadline", func(r *ansible.Request) { r.Deadline = 2 }, false, false},
		{"differ in the playbook", func(r *ansible.Request) { r.Playbook = ansible.VerifyHost }, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			other := base
			other.Hosts = []ansible.Host{base.Hosts[0]}
			tt.change(&other)
			same := map[bool]func(any) types.GomegaMatcher{true: Equal, false: func(other any) types.GomegaMatcher { return Not(Equal(other)) }}
			g.Expect(kindOf(&other)).To(same[tt.kind](kindOf(&base)))
			g.Expect(digestOfRequest(&other)).To(same[tt.digest](digestOfRequest(&base)))
		})
	}
}

func TestOutputIsLimitedAndItsEndIsKept(t *testing.T) {
	g := NewWithT(t)
	var file bytes.Buffer
	tail := &tailWriter{}
	w := &limitWriter{next: &file, left: 10, tail: tail}
	for _, part := range []string{"0123456", "789abc", strings.Repeat("x", 2000), "the end"} {
		n, err := w.Write([]byte(part))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(n).To(Equal(len(part)))
	}
	g.Expect(file.String()).To(Equal("0123456789" + cutHere))
	g.Expect(tail.String()).To(And(HaveSuffix("xthe end"), HaveLen(tailSize)))
}
