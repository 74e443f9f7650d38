// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// runHanging starts an Exec and a Process that do not end, and returns where their errors will be.
func runHanging(t *testing.T, s *server, conn *Conn) <-chan error {
	t.Helper()
	failures := make(chan error, 2)
	process := startHanging(t, conn)
	go func() {
		_, err := process.Wait()
		failures <- err
	}()
	go func() {
		_, err := conn.Exec(context.Background(), "hang", nil)
		failures <- err
	}()
	NewWithT(t).Eventually(s.sessions.Load, soon).Should(BeEquivalentTo(2))
	return failures
}

func TestAHostThatStopsAnsweringIsNoticed(t *testing.T) {
	g := NewWithT(t)
	s := newServer(t, &serverOptions{})
	p, target := newPool(t, Options{KeepaliveInterval: 20 * time.Millisecond, KeepaliveTimeout: time.Second}), targetOf(t, s)
	conn, err := p.Get(t.Context(), "ns/host", target)
	g.Expect(err).NotTo(HaveOccurred())
	failures := runHanging(t, s, conn)
	s.freeze()
	for range 2 {
		var err error
		g.Eventually(failures, soon).Should(Receive(&err))
		g.Expect(ReasonOf(err)).To(Equal(Timeout))
		g.Expect(err).To(MatchError(ContainSubstring("did not answer a keepalive within 1s")))
	}

	// The host comes back, at another address.
	another := newServer(t, &serverOptions{})
	target.Address = another.address()
	conn, err = p.Get(t.Context(), "ns/host", target)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = conn.Exec(t.Context(), "exit 0", nil)
	g.Expect(err).NotTo(HaveOccurred())
}

func TestKeepalivesKeepAConnectionThatAnswers(t *testing.T) {
	g := NewWithT(t)
	conn := connect(t, newServer(t, &serverOptions{}), Options{KeepaliveInterval: time.Millisecond})
	for range 50 {
		conn.ping()
	}
	g.Expect(conn.failure()).NotTo(HaveOccurred())
}

func TestABrokenConnectionIsReplaced(t *testing.T) {
	g := NewWithT(t)
	s := newServer(t, &serverOptions{})
	p, target := newPool(t, Options{}), targetOf(t, s)
	conn, err := p.Get(t.Context(), "ns/host", target)
	g.Expect(err).NotTo(HaveOccurred())
	failures := runHanging(t, s, conn)
	s.dropAll()
	for range 2 {
		var err error
		g.Eventually(failures, soon).Should(Receive(&err))
		g.Expect(ReasonOf(err)).To(Equal(Unreachable))
		g.Expect(err).To(MatchError(ContainSubstring("the SSH connection broke")))
	}
	_, err = conn.Exec(t.Context(), "exit 0", nil)
	g.Expect(ReasonOf(err)).To(Equal(Unreachable), "it stays broken")
	again, err := p.Get(t.Context(), "ns/host", target)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).NotTo(BeIdenticalTo(conn))
}

// Each round would fail if the caller could learn of the end of its command before the Pool learns of the end of the
// connection.
func TestTheNextGetAfterAnErrorNeverReturnsTheBrokenConnection(t *testing.T) {
	g := NewWithT(t)
	s := newServer(t, &serverOptions{})
	p, target := newPool(t, Options{}), targetOf(t, s)
	for range 50 {
		conn, err := p.Get(t.Context(), "ns/host", target)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = conn.Exec(t.Context(), "drop", nil)
		g.Expect(ReasonOf(err)).To(Equal(Unreachable))
		conn, err = p.Get(t.Context(), "ns/host", target)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = conn.Exec(t.Context(), "exit 0", nil)
		g.Expect(err).NotTo(HaveOccurred())
	}
}

func TestAnIdleConnectionIsClosed(t *testing.T) {
	g := NewWithT(t)
	s := newServer(t, &serverOptions{})
	p, target := newPool(t, Options{IdleTimeout: 100 * time.Millisecond}), targetOf(t, s)
	conn, err := p.Get(t.Context(), "ns/host", target)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(conn.failure, soon).Should(MatchError(ErrIdle))
	_, err = conn.Exec(t.Context(), "exit 0", nil)
	g.Expect(ReasonOf(err)).To(Equal(Closed))
	again, err := p.Get(t.Context(), "ns/host", target)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).NotTo(BeIdenticalTo(conn))
}

func TestAConnectionWithASessionIsNotIdle(t *testing.T) {
	g := NewWithT(t)
	conn := connect(t, newServer(t, &serverOptions{}), Options{IdleTimeout: time.Hour})
	process := startHanging(t, conn)
	longAgo := func() {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		conn.lastUsed = time.Now().Add(-24 * time.Hour)
	}
	longAgo()
	conn.closeIfIdle()
	g.Expect(conn.failure()).NotTo(HaveOccurred())
	g.Expect(process.Close()).To(Succeed())
	conn.closeIfIdle()
	g.Expect(conn.failure()).NotTo(HaveOccurred(), "the time counts from the end of the session")
	longAgo()
	g.Expect(conn.touch()).To(BeTrue())
	conn.closeIfIdle()
	g.Expect(conn.failure()).NotTo(HaveOccurred(), "somebody has just got it")
	longAgo()
	conn.closeIfIdle()
	g.Expect(conn.failure()).To(MatchError(ErrIdle))
}
