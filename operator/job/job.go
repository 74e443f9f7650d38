// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package job runs work that takes longer than a reconcile may wait: a reconciler starts a job, goes on with other objects, and
// is woken when the job has ended.
package job

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// State is what is known of a job.
type State struct {
	// Running says that it has not ended.
	Running bool
	// Started is when it began.
	Started time.Time
	// Err is why it failed, once it has ended.
	Err error
}

type job struct {
	state  State
	cancel context.CancelFunc
	ended  chan struct{}
}

// Runner runs jobs, one at a time for each key, which names what the job produces. The zero value is not usable; see New.
type Runner struct {
	//nolint:containedctx // Jobs outlive the reconcile that starts them; this is the context of the manager's life.
	ctx    context.Context
	wakeUp chan event.GenericEvent

	mu   sync.Mutex
	jobs map[string]*job
}

// New returns a Runner whose jobs end with ctx.
func New(ctx context.Context) *Runner {
	return &Runner{ctx: ctx, wakeUp: make(chan event.GenericEvent), jobs: map[string]*job{}}
}

// Source wakes a reconciler for the object of each job that has ended.
func (r *Runner) Source() source.Source {
	return source.Channel(r.wakeUp, &handler.EnqueueRequestForObject{})
}

// Start runs a job unless one with this key is known, running or ended. The job ends when its context does.
func (r *Runner) Start(key string, object client.Object, run func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.jobs[key] != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.ctx)
	j := &job{state: State{Running: true, Started: time.Now()}, cancel: cancel, ended: make(chan struct{})}
	r.jobs[key] = j
	go func() {
		err := run(ctx)
		cancel()
		r.mu.Lock()
		j.state.Running, j.state.Err = false, err
		r.mu.Unlock()
		close(j.ended)
		select {
		case r.wakeUp <- event.GenericEvent{Object: object}:
		case <-r.ctx.Done():
		}
	}()
}

// Wake wakes the reconciler for an object before a job has ended, when it has news. It waits until the reconciler is told, or ctx ends.
func (r *Runner) Wake(ctx context.Context, object client.Object) {
	select {
	case r.wakeUp <- event.GenericEvent{Object: object}:
	case <-ctx.Done():
	}
}

// State returns what is known of a job, and whether anything is.
func (r *Runner) State(key string) (State, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := r.jobs[key]
	if j == nil {
		return State{}, false
	}
	return j.state, true
}

// Forget cancels a job, waits until it has ended or ctx has, and forgets it, so that it can be started again.
func (r *Runner) Forget(ctx context.Context, key string) error {
	r.mu.Lock()
	j := r.jobs[key]
	r.mu.Unlock()
	if j == nil {
		return nil
	}
	j.cancel()
	select {
	case <-j.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.jobs[key] == j {
		delete(r.jobs, key)
	}
	return nil
}
