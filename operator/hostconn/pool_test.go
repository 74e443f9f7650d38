// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/crypto/ssh"
)

// soon bounds what should happen at once, on a machine that is busy with something else.
const soon = 20 * time.Second

type got struct {
	conn *Conn
	err  error
}

// getInBackground calls Get and returns where the result will be.
func getInBackground(ctx context.Context, p *Pool, key string, target Target) <-chan got {
	result := make(chan got, 1)
	go func() {
		conn, err := p.Get(ctx, key, target)
		result <- got{conn, err}
	}()
	return result
}

func TestConcurrentGetsShareOneConnection(t *testing.T) {
	g := NewWithT(t)
	s := newServer(t, &serverOptions{})
	p, target := newPool(t, Options{}), targetOf(t, s)
	var all []<-chan got
	for range 20 {
		all = append(all, getInBackground(t.Context(), p, "ns/host", target))
	}
	conns := map[*Conn]bool{}
	for _, result := range all {
		r := <-result
		g.Expect(r.err).NotTo(HaveOccurred())
		conns[r.conn] = true
	}
	g.Expect(conns).To(HaveLen(1))
	g.Expect(s.accepted.Load()).To(BeEquivalentTo(1))
}

func TestADialGoesOnWhenOneOfItsCallersGivesUp(t *testing.T) {
	g := NewWithT(t)
	options := &serverOptions{gate: make(chan struct{})}
	s := newServer(t, options)
	p, target := newPool(t, Options{}), targetOf(t, s)

	ctx, cancel := context.WithCancel(t.Context())
	first := getInBackground(ctx, p, "ns/host", target)
	g.Eventually(s.accepted.Load, soon).Should(BeEquivalentTo(1))
	second := getInBackground(t.Context(), p, "ns/host", target)
	cancel()
	g.Expect((<-first).err).To(MatchError(context.Canceled))
	close(options.gate)
	g.Expect((<-second).err).NotTo(HaveOccurred())
	g.Expect(s.accepted.Load()).To(BeEquivalentTo(1))
}

func TestASlowHostDoesNotDelayAnother(t *testing.T) {
	g := NewWithT(t)
	slow, quick := newServer(t, &serverOptions{silent: true}), newServer(t, &serverOptions{})
	p := newPool(t, Options{})
	waiting := getInBackground(t.Context(), p, "ns/slow", targetOf(t, slow))
	g.Eventually(slow.accepted.Load, soon).Should(BeEquivalentTo(1))
	_, err := p.Get(t.Context(), "ns/quick", targetOf(t, quick))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(waiting).NotTo(Receive())
}

func TestGetDialsAnewWhenTheTargetChanges(t *testing.T) {
	options := &serverOptions{}
	key := newSigner(t, ed25519Key)
	options.hostKeys = []ssh.Signer{key}
	s := newServer(t, options)
	for _, tt := range []struct {
		name   string
		change func(*Target)
		same   bool
	}{
		{"not when nothing changes", func(*Target) {}, true},
		{"for another user", func(t *Target) { t.User = "other" }, false},
		{"for another private key", func(target *Target) { target.PrivateKey = openSSH(t, newKey(t, ed25519Key)) }, false},
		{"for another address", func(target *Target) { target.Address = newServer(t, options).address() }, false},
		{"not when the key that was accepted is pinned", func(t *Target) { t.HostKeyFingerprint = fingerprintOf(key) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			p, target := newPool(t, Options{}), targetOf(t, s)
			old, err := p.Get(t.Context(), "ns/host", target)
			g.Expect(err).NotTo(HaveOccurred())
			tt.change(&target)
			conn, err := p.Get(t.Context(), "ns/host", target)
			g.Expect(err).NotTo(HaveOccurred())
			if tt.same {
				g.Expect(conn).To(BeIdenticalTo(old))
			} else {
				g.Expect(conn).NotTo(BeIdenticalTo(old))
				g.Eventually(old.failure, soon).Should(MatchError(ErrReplaced))
			}
			g.Expect(conn.Exec(t.Context(), "exit 0", nil)).To(Equal(Result{}))
		})
	}
}

func TestAnotherPinIsVerifiedOnANewConnection(t *testing.T) {
	g := NewWithT(t)
	s := newServer(t, &serverOptions{})
	p, target := newPool(t, Options{}), targetOf(t, s)
	_, err := p.Get(t.Context(), "ns/host", target)
	g.Expect(err).NotTo(HaveOccurred())
	target.HostKeyFingerprint = fingerprintOf(newSigner(t, ed25519Key))
	_, err = p.Get(t.Context(), "ns/host", target)
	g.Expect(ReasonOf(err)).To(Equal(HostKeyMismatch))
}

func TestAFailedDialIsNotKept(t *testing.T) {
	g := NewWithT(t)
	refusals := 1
	s := newServer(t, &serverOptions{publicKey: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
		if refusals--; refusals >= 0 {
			return nil, errors.New("not yet")
		}
		return nil, nil
	}})
	p, target := newPool(t, Options{}), targetOf(t, s)
	_, err := p.Get(t.Context(), "ns/host", target)
	g.Expect(ReasonOf(err)).To(Equal(Unauthorized))
	_, err = p.Get(t.Context(), "ns/host", target)
	g.Expect(err).NotTo(HaveOccurred())
}

func TestForgetEnds(t *testing.T) {
	t.Run("an open connection and what runs over it", func(t *testing.T) {
		g := NewWithT(t)
		s := newServer(t, &serverOptions{})
		p := newPool(t, Options{})
		conn, err := p.Get(t.Context(), "ns/host", targetOf(t, s))
		g.Expect(err).NotTo(HaveOccurred())
		process := startHanging(t, conn)
		p.Forget("ns/host")
		_, err = process.Wait()
		g.Expect(ReasonOf(err)).To(Equal(Closed))
		g.Expect(err).To(MatchError(ErrReplaced))
	})
	t.Run("a dial", func(t *testing.T) {
		g := NewWithT(t)
		s := newServer(t, &serverOptions{silent: true})
		p := newPool(t, Options{})
		waiting := getInBackground(t.Context(), p, "ns/host", targetOf(t, s))
		g.Eventually(s.accepted.Load, soon).Should(BeEquivalentTo(1))
		p.Forget("ns/host")
		g.Expect((<-waiting).err).To(MatchError(ErrReplaced))
	})
	t.Run("nothing for a host that was never used", func(t *testing.T) {
		newPool(t, Options{}).Forget("ns/unknown")
		NewWithT(t).Expect(dials.DeleteLabelValues("ns/unknown")).To(BeFalse(), "not even a metric")
	})
}

func TestCloseEndsEverything(t *testing.T) {
	g := NewWithT(t)
	before := runtime.NumGoroutine()
	p := NewPool(Options{MaxSessions: 2})
	s, silent := newServer(t, &serverOptions{}), newServer(t, &serverOptions{silent: true})
	conn, err := p.Get(t.Context(), "ns/host", targetOf(t, s))
	g.Expect(err).NotTo(HaveOccurred())
	dialing := getInBackground(t.Context(), p, "ns/silent", targetOf(t, silent))
	g.Eventually(silent.accepted.Load, soon).Should(BeEquivalentTo(1))

	process := startHanging(t, conn)
	var running sync.WaitGroup
	failures := make(chan error, 3)
	for range 3 { // One runs and two wait for a session.
		running.Go(func() {
			_, err := conn.Exec(t.Context(), "hang", nil)
			failures <- err
		})
	}
	g.Eventually(s.sessions.Load, soon).Should(BeEquivalentTo(2))

	g.Expect(p.Close()).To(Succeed())
	running.Wait()
	for range 3 {
		g.Expect(<-failures).To(MatchError(ErrClosed))
	}
	_, err = process.Wait()
	g.Expect(err).To(MatchError(ErrClosed))
	g.Expect((<-dialing).err).To(MatchError(ErrClosed))
	_, err = p.Get(t.Context(), "ns/host", targetOf(t, s))
	g.Expect(err).To(MatchError(ErrClosed))
	g.Expect(ReasonOf(err)).To(Equal(Closed))
	s.stop()
	silent.stop()
	g.Eventually(runtime.NumGoroutine, soon).Should(BeNumerically("<=", before))
}

func TestMetricsCountByHost(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	g.Expect(Register(registry)).To(Succeed())
	g.Expect(Register(registry)).NotTo(Succeed(), "twice")
	s := newServer(t, &serverOptions{})
	p := newPool(t, Options{})
	conn, err := p.Get(t.Context(), "ns/counted", targetOf(t, s))
	g.Expect(err).NotTo(HaveOccurred())
	for range 3 {
		_, err = conn.Exec(t.Context(), "exit 0", nil)
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(testutil.ToFloat64(dials.WithLabelValues("ns/counted"))).To(Equal(1.0))
	g.Expect(testutil.ToFloat64(execs.WithLabelValues("ns/counted"))).To(Equal(3.0))
	for _, direction := range []string{"sent", "received"} {
		// A handshake alone takes more than that.
		g.Expect(testutil.ToFloat64(bytesTotal.WithLabelValues("ns/counted", direction))).To(BeNumerically(">", 500), direction)
	}
	names, err := testutil.GatherAndCount(registry, "caplv_ssh_dials_total", "caplv_ssh_execs_total")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names).To(BeNumerically(">=", 2))
	p.Forget("ns/counted")
	g.Expect(execs.DeleteLabelValues("ns/counted")).To(BeFalse(), "a host that is gone has no metrics")
	g.Expect(bytesTotal.DeleteLabelValues("ns/counted", "sent")).To(BeFalse(), "a host that is gone has no metrics")
}
