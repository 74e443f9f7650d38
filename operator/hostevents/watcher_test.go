// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostevents

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/virsh"
)

// hosts are hosts in memory, each of which tells of what its channel gets.
type hosts struct {
	mu     sync.Mutex
	err    error
	opened map[string]int
	open   map[string]*stream
	uris   []string
}

type stream struct {
	events chan virsh.Event
	end    chan error
	closed chan struct{}
}

func (h *hosts) start(_ context.Context, lh *infrav1.LibvirtHost) (Stream, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.opened[lh.Name]++
	h.uris = append(h.uris, lh.Spec.URI)
	if h.err != nil {
		return nil, h.err
	}
	s := &stream{events: make(chan virsh.Event), end: make(chan error, 1), closed: make(chan struct{})}
	h.open[lh.Name] = s
	return s, nil
}

func (h *hosts) stream(name string) *stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open[name]
}

func (h *hosts) count(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.opened[name]
}

func (h *hosts) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

func (s *stream) Next(ctx context.Context) (virsh.Event, error) {
	select {
	case e := <-s.events:
		return e, nil
	case err := <-s.end:
		return virsh.Event{}, err
	case <-ctx.Done():
		return virsh.Event{}, ctx.Err()
	}
}

func (s *stream) Close() { close(s.closed) }

type bench struct {
	*WithT
	hosts *hosts
	w     *Watcher
}

func newBench(t *testing.T, options Options) *bench {
	t.Helper()
	h := &hosts{opened: map[string]int{}, open: map[string]*stream{}}
	if options.Settle == 0 {
		options.Settle = time.Hour
	}
	return &bench{WithT: NewWithT(t), hosts: h, w: New(t.Context(), h.start, logr.Discard(), options)}
}

func lhost(name string) *infrav1.LibvirtHost {
	return &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: infrav1.LibvirtHostSpec{URI: "qemu+ssh://a@" + name + "/system"}}
}

func machine(name string) client.ObjectKey { return client.ObjectKey{Namespace: "ns", Name: name} }

// woken expects the reconciler to be woken for these machines, in this order.
func (b *bench) woken(names ...string) {
	for _, name := range names {
		select {
		case e := <-b.w.wakeUp:
			b.Expect(e.Object.GetNamespace()).To(Equal("ns"))
			b.Expect(e.Object.GetName()).To(Equal(name))
		case <-time.After(5 * time.Second):
			b.Expect(name).To(BeEmpty(), "the machine's reconciler is not woken")
		}
	}
}

func (b *bench) quiet() { b.Consistently(b.w.wakeUp, 50*time.Millisecond).ShouldNot(Receive()) }

func lifecycle(domain string) virsh.Event {
	return virsh.Event{Kind: "lifecycle", Domain: domain, Detail: "Stopped Destroyed"}
}

func TestAnEventWakesTheMachineThatItIsAbout(t *testing.T) {
	b := newBench(t, Options{})
	b.w.Watch(lhost("h"), machine("m"), "ns-prod-m")
	b.woken("m") // Nobody knows what happened before.
	s := b.hosts.stream("h")
	s.events <- lifecycle("ns-prod-m")
	b.woken("m")
	s.events <- lifecycle("of-somebody-else")
	s.events <- virsh.Event{Kind: "rtc-change", Domain: "ns-prod-m"}
	b.quiet()
	s.events <- virsh.Event{Kind: "io-error-reason", Domain: "ns-prod-m"}
	b.woken("m")
}

func TestAMachineIsLookedAtAgainWhenItsStreamHasSettled(t *testing.T) {
	b := newBench(t, Options{Settle: 20 * time.Millisecond})
	b.w.Watch(lhost("h"), machine("m"), "ns-prod-m")
	b.woken("m", "m")
	b.quiet()
}

func TestAHostHasOneStreamFromItsFirstMachineToItsLast(t *testing.T) {
	b := newBench(t, Options{})
	b.w.Watch(lhost("h"), machine("m1"), "ns-prod-m1")
	b.woken("m1")
	b.w.Watch(lhost("h"), machine("m2"), "ns-prod-m2")
	b.w.Watch(lhost("h"), machine("m1"), "ns-prod-m1")
	s := b.hosts.stream("h")
	s.events <- lifecycle("ns-prod-m2")
	b.woken("m2")
	b.Expect(b.hosts.count("h")).To(Equal(1))

	b.w.Unwatch(machine("m1"))
	s.events <- lifecycle("ns-prod-m1")
	b.quiet()
	b.Consistently(s.closed, 30*time.Millisecond).ShouldNot(BeClosed())
	b.w.Unwatch(machine("m2"))
	b.Eventually(s.closed).Should(BeClosed())
	b.w.Unwatch(machine("m2"))
	b.Consistently(func() int { return b.hosts.count("h") }, 50*time.Millisecond).Should(Equal(1), "a host without machines sees no traffic")

	// The next one begins anew.
	b.w.Watch(lhost("h"), machine("m3"), "ns-prod-m3")
	b.woken("m3")
	b.Expect(b.hosts.count("h")).To(Equal(2))
}

func TestAMachineOnAnotherHostIsWatchedThere(t *testing.T) {
	b := newBench(t, Options{})
	b.w.Watch(lhost("h1"), machine("m"), "ns-prod-m")
	b.woken("m")
	b.w.Watch(lhost("h2"), machine("m"), "ns-prod-m")
	b.Eventually(b.hosts.stream("h1").closed).Should(BeClosed())
	b.woken("m")
	b.hosts.stream("h2").events <- lifecycle("ns-prod-m")
	b.woken("m")
}

func TestAStreamThatEndsWakesItsMachinesAndIsOpenedAgain(t *testing.T) {
	b := newBench(t, Options{FirstPause: 5 * time.Millisecond, MaxPause: 20 * time.Millisecond})
	b.w.Watch(lhost("h"), machine("m"), "ns-prod-m")
	b.woken("m")
	lost := errors.New("the SSH connection broke")
	b.hosts.fail(lost)
	first := b.hosts.stream("h")
	first.end <- lost
	b.woken("m")
	b.Eventually(first.closed).Should(BeClosed())
	b.Eventually(func() int { return b.hosts.count("h") }).Should(BeNumerically(">", 3), "it is tried again and again")
	b.quiet()

	// The host is reached elsewhere now.
	moved := lhost("h")
	moved.Spec.URI = "qemu+ssh://a@moved/system"
	b.w.Watch(moved, machine("m"), "ns-prod-m")
	b.hosts.fail(nil)
	b.woken("m")
	b.hosts.mu.Lock()
	b.Expect(b.hosts.uris[len(b.hosts.uris)-1]).To(Equal("qemu+ssh://a@moved/system"))
	b.hosts.mu.Unlock()
	b.hosts.stream("h").events <- lifecycle("ns-prod-m")
	b.woken("m")
}

func TestPausesGrow(t *testing.T) {
	b := newBench(t, Options{FirstPause: 20 * time.Millisecond, MaxPause: time.Hour})
	b.hosts.fail(errors.New("no route"))
	b.w.Watch(lhost("h"), machine("m"), "ns-prod-m")
	time.Sleep(200 * time.Millisecond)
	// After 0, 20, 60 and 140 ms, if nothing was late.
	b.Expect(b.hosts.count("h")).To(BeNumerically("<=", 4))
	b.quiet()
}

func TestStreamsEndWithTheManager(t *testing.T) {
	b := newBench(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	b.w = New(ctx, b.hosts.start, logr.Discard(), Options{Settle: time.Hour})
	b.w.Watch(lhost("h"), machine("m"), "ns-prod-m")
	b.woken("m")
	s := b.hosts.stream("h")
	cancel()
	b.Eventually(s.closed).Should(BeClosed())
	b.Expect(b.hosts.count("h")).To(Equal(1))
}

func TestItsMetricsAreRegisteredOnce(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	g.Expect(RegisterMetrics(registry)).To(Succeed())
	g.Expect(RegisterMetrics(registry)).NotTo(Succeed())
}
