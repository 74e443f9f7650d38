// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	. "github.com/onsi/gomega"
)

// connect returns a connection to the server.
func connect(t *testing.T, s *server, options Options) *Conn {
	t.Helper()
	conn, err := newPool(t, options).Get(t.Context(), "ns/host", targetOf(t, s))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return conn
}

// startHanging starts a command that does not end, and waits until it runs.
func startHanging(t *testing.T, conn *Conn) Process {
	t.Helper()
	g := NewWithT(t)
	process, err := conn.Start(t.Context(), "hang")
	g.Expect(err).NotTo(HaveOccurred())
	line, err := bufio.NewReader(process.Stdout()).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(line).To(Equal("started\n"))
	return process
}

func TestExecReturnsWhatACommandDid(t *testing.T) {
	conn := connect(t, newServer(t, &serverOptions{}), Options{})
	for _, tt := range []struct {
		name, command string
		stdin         io.Reader
		want          Result
	}{
		{"its outputs", "echo word", nil, Result{Stdout: []byte("word"), Stderr: []byte("WORD")}},
		{"its input", "cat", strings.NewReader("word"), Result{Stdout: []byte("word")}},
		{"a large input", "cat", strings.NewReader(strings.Repeat("x", 5<<20)), Result{Stdout: []byte(strings.Repeat("x", 5<<20))}},
		{"no input", "cat", nil, Result{}},
		{"a failure, which is no error", "exit 3", nil, Result{ExitCode: 3}},
		{"the end by a signal", "killed TERM", nil, Result{ExitCode: 128 + 15}},
		{"a success without reading its input", "exit 0", strings.NewReader(strings.Repeat("x", 5<<20)), Result{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			result, err := conn.Exec(t.Context(), tt.command, tt.stdin)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(result.Stdout)).To(Equal(string(tt.want.Stdout)))
			g.Expect(string(result.Stderr)).To(Equal(string(tt.want.Stderr)))
			g.Expect(result.ExitCode).To(Equal(tt.want.ExitCode))
		})
	}
}

func TestExecFails(t *testing.T) {
	errDisk := errors.New("the disk is gone")
	conn := connect(t, newServer(t, &serverOptions{}), Options{})
	for _, tt := range []struct {
		name, command string
		stdin         io.Reader
		reason        Reason
		says          string
	}{
		{"when there is no exit status", "vanish", nil, Unreachable, "without an exit status"},
		{"when the host refuses to run commands", "refuse", nil, Unreachable, "refused to run a command"},
		{"when the output is too large", "flood", nil, "", ErrOutputTooLarge.Error()},
		{"when the input cannot be read to its end", "cat", iotest.ErrReader(errDisk), "", errDisk.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := conn.Exec(t.Context(), tt.command, tt.stdin)
			g.Expect(err).To(MatchError(ContainSubstring(tt.says)))
			g.Expect(ReasonOf(err)).To(Equal(tt.reason))
			g.Expect(conn.touch()).To(BeTrue(), "the connection is as good as before")
			_, err = conn.Exec(t.Context(), "exit 0", nil)
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

func TestExecReturnsWhenTheContextEnds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		frozen bool // Whether the host has died without a word.
	}{
		{"and ends the command", false},
		{"also on a host that has died", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			s := newServer(t, &serverOptions{})
			conn := connect(t, s, Options{})
			ctx, cancel := context.WithCancel(t.Context())
			failure := make(chan error, 1)
			go func() {
				_, err := conn.Exec(ctx, "hang", nil)
				failure <- err
			}()
			g.Eventually(s.sessions.Load, soon).Should(BeEquivalentTo(1))
			if tt.frozen {
				s.freeze()
			}
			cancel()
			var err error
			g.Eventually(failure, soon).Should(Receive(&err))
			g.Expect(err).To(MatchError(context.Canceled))
			g.Expect(ReasonOf(err)).To(Equal(Canceled))
			g.Expect(conn.touch()).To(BeTrue(), "others use the connection")
			if !tt.frozen {
				g.Eventually(s.signals, soon).Should(Receive(Equal("TERM")))
				g.Eventually(s.sessions.Load, soon).Should(BeZero())
			}
		})
	}
}

func TestDeadlinesOfCommandsAreTimeouts(t *testing.T) {
	for _, tt := range []struct {
		name string
		run  func(context.Context, *Conn) error
		// frozen says whether the host has died without a word; full whether all sessions are in use.
		frozen, full bool
	}{
		{"Exec, while the command runs", func(ctx context.Context, c *Conn) error { _, err := c.Exec(ctx, "hang", nil); return err }, false, false},
		{"Exec, while it waits for a session", func(ctx context.Context, c *Conn) error { _, err := c.Exec(ctx, "exit 0", nil); return err }, false, true},
		{"Start, on a host that has died", func(ctx context.Context, c *Conn) error { _, err := c.Start(ctx, "exit 0"); return err }, true, false},
		{"Start, while it waits for a session", func(ctx context.Context, c *Conn) error { _, err := c.Start(ctx, "exit 0"); return err }, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			s := newServer(t, &serverOptions{})
			conn := connect(t, s, Options{MaxSessions: 1})
			if tt.full {
				startHanging(t, conn)
			}
			if tt.frozen {
				s.freeze()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			err := tt.run(ctx, conn)
			g.Expect(ReasonOf(err)).To(Equal(Timeout))
			g.Expect(err).To(MatchError(context.DeadlineExceeded))
			g.Expect(err).To(MatchError(ContainSubstring("timed out")))
		})
	}
}

func TestAProcessOutlivesTheContextOfItsStart(t *testing.T) {
	g := NewWithT(t)
	conn := connect(t, newServer(t, &serverOptions{}), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	process, err := conn.Start(ctx, "cat")
	g.Expect(err).NotTo(HaveOccurred())
	cancel()
	_, err = io.WriteString(process.Stdin(), "word")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(process.Stdin().Close()).To(Succeed())
	g.Expect(io.ReadAll(process.Stdout())).To(BeEquivalentTo("word"))
	g.Expect(io.ReadAll(process.Stderr())).To(BeEmpty())
	for range 2 { // Wait can be repeated.
		g.Expect(process.Wait()).To(Equal(0))
	}
	g.Expect(process.Close()).To(Succeed())
	g.Expect(process.Wait()).To(Equal(0), "the exit status stays")
}

func TestClosingAProcessEndsItsSession(t *testing.T) {
	g := NewWithT(t)
	s := newServer(t, &serverOptions{})
	conn := connect(t, s, Options{MaxSessions: 1})
	process := startHanging(t, conn)
	g.Expect(process.Close()).To(Succeed())
	_, err := process.Wait()
	g.Expect(ReasonOf(err)).To(Equal(Closed))
	g.Expect(err).To(MatchError(ErrSessionClosed))
	g.Expect(process.Close()).To(Succeed(), "again")
	_, err = conn.Exec(t.Context(), "exit 0", nil)
	g.Expect(err).NotTo(HaveOccurred(), "the only session is free")
	g.Eventually(s.sessions.Load, soon).Should(BeZero())
	g.Expect(s.signals).To(BeEmpty(), "a process that is closed in an orderly way gets no signal")
}

func TestSessionsAtOnceAreLimited(t *testing.T) {
	for _, tt := range []struct {
		name          string
		ours, servers int
	}{
		{"by this side", 3, 0},
		{"by the server, whose refusals are waited out", 6, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			s := newServer(t, &serverOptions{maxSessions: int32(tt.servers)})
			conn := connect(t, s, Options{MaxSessions: tt.ours, sessionRetry: time.Hour})
			var running sync.WaitGroup
			failures := make(chan error, 30)
			for range 30 {
				running.Go(func() {
					_, err := conn.Exec(t.Context(), "echo word", nil)
					failures <- err
				})
			}
			running.Wait()
			for range 30 {
				g.Expect(<-failures).NotTo(HaveOccurred())
			}
			limit := tt.ours
			if tt.servers > 0 {
				limit = tt.servers
			}
			g.Expect(s.peak).To(BeNumerically("<=", limit))
			g.Expect(conn.slots).To(BeEmpty())
		})
	}
}

func TestAServerThatOpensNoMoreSessionsIsNamed(t *testing.T) {
	g := NewWithT(t)
	conn := connect(t, newServer(t, &serverOptions{maxSessions: 1}), Options{sessionRetry: time.Millisecond})
	startHanging(t, conn)
	_, err := conn.Exec(t.Context(), "exit 0", nil)
	g.Expect(ReasonOf(err)).To(Equal(Unreachable))
	g.Expect(err).To(MatchError(ContainSubstring("raise MaxSessions")))
	g.Expect(conn.touch()).To(BeTrue())
}
