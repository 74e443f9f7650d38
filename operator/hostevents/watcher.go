// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostevents keeps one stream of libvirt's events from each host that has machines, and wakes the reconciler of the
// machines to which something happens. It says that something has happened, and not what: the reconciler observes. Hosts
// without machines see no traffic.
package hostevents

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/virsh"
)

// Stream is the events of one host. virsh.Events is one.
type Stream interface {
	// Next waits for the next event; an error ends the stream.
	Next(ctx context.Context) (virsh.Event, error)
	Close()
}

// Open starts a stream from the host behind a LibvirtHost.
type Open func(ctx context.Context, host *infrav1.LibvirtHost) (Stream, error)

// Options are times. The zero value has the defaults in brackets.
type Options struct {
	// FirstPause is the pause before a stream that has ended is opened again [1 s]. It doubles up to MaxPause [1 min], and begins anew
	// with a stream that has lasted for as long.
	FirstPause, MaxPause time.Duration
	// Settle is how long after its start a stream may miss events [500 ms]: the machines are looked at again after it.
	Settle time.Duration
	// OpenTimeout bounds the start of a stream [30 s].
	OpenTimeout time.Duration
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&o.FirstPause, time.Second}, {&o.MaxPause, time.Minute}, {&o.Settle, 500 * time.Millisecond}, {&o.OpenTimeout, 30 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	return o
}

// Watcher holds the streams. Its methods may be called concurrently, and do not wait for a host.
type Watcher struct {
	//nolint:containedctx // Streams outlive the reconcile that starts them; this is the context of the manager's life.
	ctx     context.Context
	open    Open
	log     logr.Logger
	options Options
	wakeUp  chan event.GenericEvent

	mu    sync.Mutex
	hosts map[client.ObjectKey]*watched
	// places says which host each machine is on.
	places map[client.ObjectKey]client.ObjectKey
}

// watched is a host with machines.
type watched struct {
	cancel context.CancelFunc
	// host is the object as it was last seen. domains are the machines by the names of their domains.
	host    *infrav1.LibvirtHost
	domains map[string]client.ObjectKey
}

// New returns a Watcher whose streams end with ctx.
func New(ctx context.Context, open Open, log logr.Logger, options Options) *Watcher {
	return &Watcher{
		ctx: ctx, open: open, log: log, options: options.withDefaults(), wakeUp: make(chan event.GenericEvent),
		hosts: map[client.ObjectKey]*watched{}, places: map[client.ObjectKey]client.ObjectKey{},
	}
}

// Source wakes a reconciler for each machine to which something has happened.
func (w *Watcher) Source() source.Source {
	return source.Channel(w.wakeUp, &handler.EnqueueRequestForObject{})
}

// Watch begins to tell of a machine's domain. The first machine of a host opens its stream. It may be called again, which makes a
// changed LibvirtHost known.
func (w *Watcher) Watch(host *infrav1.LibvirtHost, machine client.ObjectKey, domain string) {
	key := client.ObjectKeyFromObject(host)
	w.mu.Lock()
	defer w.mu.Unlock()
	if place, ok := w.places[machine]; ok && place != key {
		w.remove(machine)
	}
	h := w.hosts[key]
	if h == nil {
		ctx, cancel := context.WithCancel(w.ctx)
		h = &watched{cancel: cancel, domains: map[string]client.ObjectKey{}}
		w.hosts[key] = h
		go w.follow(ctx, key, h)
	}
	h.host = host.DeepCopy()
	h.domains[domain] = machine
	w.places[machine] = key
}

// Unwatch ends that. The last machine of a host closes its stream. Machines that are not watched are ignored.
func (w *Watcher) Unwatch(machine client.ObjectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(machine)
}

// remove is Unwatch for a caller that holds the lock.
func (w *Watcher) remove(machine client.ObjectKey) {
	key, ok := w.places[machine]
	if !ok {
		return
	}
	delete(w.places, machine)
	h := w.hosts[key]
	for domain, of := range h.domains {
		if of == machine {
			delete(h.domains, domain)
		}
	}
	if len(h.domains) == 0 {
		h.cancel()
		delete(w.hosts, key)
	}
}

// object returns the LibvirtHost as it was last seen.
func (w *Watcher) object(h *watched) *infrav1.LibvirtHost {
	w.mu.Lock()
	defer w.mu.Unlock()
	return h.host
}

// machineOf returns the machine that has this domain, if there is one.
func (w *Watcher) machineOf(h *watched, domain string) (client.ObjectKey, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	machine, ok := h.domains[domain]
	return machine, ok
}

// wakeAll wakes the reconciler for all machines of a host.
func (w *Watcher) wakeAll(ctx context.Context, h *watched) {
	w.mu.Lock()
	machines := make([]client.ObjectKey, 0, len(h.domains))
	for _, machine := range h.domains {
		machines = append(machines, machine)
	}
	w.mu.Unlock()
	for _, machine := range machines {
		w.wake(ctx, machine)
	}
}

// wake waits until the reconciler is told, or ctx ends.
func (w *Watcher) wake(ctx context.Context, machine client.ObjectKey) {
	object := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: machine.Namespace, Name: machine.Name}}
	select {
	case w.wakeUp <- event.GenericEvent{Object: object}:
	case <-ctx.Done():
	}
}
