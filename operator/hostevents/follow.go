// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostevents

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/caplv/caplv/operator/controller/wake"
)

// follow keeps a stream from a host until ctx ends.
func (w *Watcher) follow(ctx context.Context, key client.ObjectKey, h *watched) {
	log := w.log.WithValues("LibvirtHost", key.String())
	pause, told := w.options.FirstPause, false
	for {
		opened, err := w.stream(ctx, h)
		if ctx.Err() != nil {
			return
		}
		lasted := time.Duration(0)
		if !opened.IsZero() {
			lasted = time.Since(opened)
			// A stream ends with its connection, its daemon, or its host.
			w.wakeAll(ctx, h)
		}
		if lasted >= w.options.MaxPause {
			pause = w.options.FirstPause
		}
		if !opened.IsZero() || !told {
			told = true
			log.Info("Reading of a host's events has ended and is tried again; machines are looked at now and then meanwhile", "cause", err.Error())
		}
		timer := time.NewTimer(wake.Jitter(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		pause = min(2*pause, w.options.MaxPause)
	}
}

// stream opens a stream and reads it until it ends. It returns when it was open, or zero if it never was, and why it ended.
func (w *Watcher) stream(ctx context.Context, h *watched) (opened time.Time, err error) {
	opening, cancel := context.WithTimeout(ctx, w.options.OpenTimeout)
	s, err := w.open(opening, w.object(h))
	cancel()
	if err != nil {
		return time.Time{}, err
	}
	defer s.Close()
	opened = time.Now()
	streams.Inc()
	defer streams.Dec()
	// Nobody knows what has happened before.
	w.wakeAll(ctx, h)
	settled := time.AfterFunc(w.options.Settle, func() { w.wakeAll(ctx, h) })
	defer settled.Stop()
	for {
		e, err := s.Next(ctx)
		if err != nil {
			return opened, err
		}
		machine, ours := w.machineOf(h, e.Domain)
		if !ours || !e.ChangesState() {
			continue
		}
		events.WithLabelValues(e.Kind).Inc()
		w.log.Info("Domain event", "LibvirtMachine", machine.String(), "event", e.Kind, "detail", e.Detail)
		w.wake(ctx, machine)
	}
}
