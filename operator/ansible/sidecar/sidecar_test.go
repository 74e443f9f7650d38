// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/runner/api"
	"github.com/caplv/caplv/operator/ansible/runner/server"
)

// backend answers with what a test gives it.
type backend struct {
	submitted ansible.Request
	status    ansible.Status
	events    []ansible.Event
	err       error
}

func (b *backend) Submit(_ context.Context, request ansible.Request) (ansible.Ref, error) {
	b.submitted = request
	return ansible.Ref{Key: request.Key}, b.err
}

func (b *backend) Status(context.Context, ansible.Ref) (ansible.Status, error) {
	return b.status, b.err
}

func (b *backend) Cancel(context.Context, ansible.Ref) error { return b.err }

func (b *backend) Follow(_ context.Context, _ ansible.Ref, after int64, tell func(ansible.Event)) error {
	for _, event := range b.events {
		if event.Sequence > after {
			tell(event)
		}
	}
	return b.err
}

// serve serves a backend on a socket that goes with the test.
func serve(t *testing.T, b *backend) (*Client, string) {
	t.Helper()
	g := NewWithT(t)
	dir, err := os.MkdirTemp("", "caplv") //nolint:usetesting // The name of a test's directory is too long for sockets.
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "runner.sock")
	listener, err := server.Listen(socket, nil)
	g.Expect(err).NotTo(HaveOccurred())
	s := server.New(server.Options{Backend: b, Log: logr.Discard()})
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(func() { _ = s.Close() })
	return New(socket), socket
}

func TestClientAndServer(t *testing.T) {
	ref := ansible.Ref{Key: "a.b-c_d"}
	b := &backend{
		status: ansible.Status{Ref: ref, Phase: ansible.Running, Started: time.Unix(1, 0).UTC(), Hosts: map[string]ansible.HostResult{"h": {Phase: ansible.Running, OK: 1}}},
		events: []ansible.Event{{Sequence: 1, Type: ansible.PlayStarted}, {Sequence: 2, Type: ansible.RunEnded, Outcome: "Failed"}},
	}
	c, socket := serve(t, b)

	t.Run("submit", func(t *testing.T) {
		g := NewWithT(t)
		request := ansible.Request{Key: ref.Key, Playbook: ansible.OnboardHost, Variables: map[string]any{"caplv_a": "{{ x }}"}, Deadline: time.Hour}
		g.Expect(c.Submit(t.Context(), request)).To(Equal(ref))
		g.Expect(b.submitted).To(Equal(request))
	})
	t.Run("status", func(t *testing.T) { NewWithT(t).Expect(c.Status(t.Context(), ref)).To(Equal(b.status)) })
	t.Run("cancel", func(t *testing.T) { NewWithT(t).Expect(c.Cancel(t.Context(), ref)).To(Succeed()) })
	t.Run("events", func(t *testing.T) {
		g := NewWithT(t)
		var events []ansible.Event
		g.Expect(c.Follow(t.Context(), ref, 1, func(event ansible.Event) { events = append(events, event) })).To(Succeed())
		g.Expect(events).To(Equal(b.events[1:]))
	})
	t.Run("events that break off", func(t *testing.T) {
		err := c.Follow(t.Context(), ref, 2, func(ansible.Event) {})
		NewWithT(t).Expect(ansible.ReasonOf(err)).To(Equal(ansible.Unavailable))
	})
	t.Run("the socket is its owner's alone", func(t *testing.T) {
		info, err := os.Stat(socket)
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
		_, err = server.Listen(socket, nil)
		g.Expect(err).To(MatchError(ContainSubstring("another ansible-runner")))
	})
}

func TestErrorsKeepTheirReason(t *testing.T) {
	b := &backend{}
	c, _ := serve(t, b)
	for _, reason := range []ansible.Reason{ansible.Unavailable, ansible.Overloaded, ansible.Rejected, ansible.Unauthorized, ansible.UnknownRun} {
		t.Run(string(reason), func(t *testing.T) {
			g := NewWithT(t)
			b.err = &ansible.Error{Reason: reason, Message: "because"}
			_, submitErr := c.Submit(t.Context(), ansible.Request{})
			_, statusErr := c.Status(t.Context(), ansible.Ref{Key: "a"})
			for _, err := range []error{submitErr, statusErr, c.Cancel(t.Context(), ansible.Ref{Key: "a"}), c.Follow(t.Context(), ansible.Ref{Key: "a"}, 0, nil)} {
				g.Expect(err).To(Equal(b.err))
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	g := NewWithT(t)
	socket := filepath.Join(t.TempDir(), "none")
	_, err := New(socket).Submit(t.Context(), ansible.Request{})
	g.Expect(ansible.ReasonOf(err)).To(Equal(ansible.Unavailable))
	g.Expect(err.Error()).To(ContainSubstring(socket))
}

func TestServerRefusesWhatIsNoRequest(t *testing.T) {
	_, socket := serve(t, &backend{})
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) }}}
	for _, tt := range []struct{ name, body, message string }{
		{"no JSON", `{"key": hunter2}`, "no JSON, at byte 9"},
		{"an unknown field", `{"keys": ""}`, `unknown field \"keys\"`},
		{"another type", `{"hosts": [{"becomePassword": 12345}]}`, "field hosts.becomePassword must not be a JSON number"},
		{"two requests", `{} {}`, "something follows"},
		{"too much", `{"key": "` + string(bytes.Repeat([]byte("x"), api.MaxBody)) + `"}`, "larger than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			response, err := client.Post("http://sidecar"+api.Runs, "application/json", bytes.NewBufferString(tt.body))
			g.Expect(err).NotTo(HaveOccurred())
			defer func() { _ = response.Body.Close() }()
			content, err := io.ReadAll(response.Body)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.StatusCode).To(Equal(http.StatusUnprocessableEntity))
			g.Expect(string(content)).To(And(ContainSubstring(tt.message), Not(ContainSubstring("hunter2")), Not(ContainSubstring("12345"))))
		})
	}
}
