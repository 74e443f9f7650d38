// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ansibletest has a backend for tests that keeps the contract of package ansible in memory. The test says how runs go on.
package ansibletest

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/caplv/caplv/operator/ansible"
)

// Backend runs nothing. Its methods may be called from several goroutines.
type Backend struct {
	mu      sync.Mutex
	runs    map[string]*run
	order   []string
	failure error
	submits int
	cancels int
	changed chan struct{}
}

type run struct {
	request ansible.Request
	status  ansible.Status
	events  []ansible.Event
}

var _ ansible.Backend = (*Backend)(nil)

// New returns a backend without runs.
func New() *Backend {
	return &Backend{runs: map[string]*run{}, changed: make(chan struct{})}
}

// Submit implements ansible.Backend. A key that is known is answered with the run that has it.
func (b *Backend) Submit(_ context.Context, request ansible.Request) (ansible.Ref, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.submits++
	if b.failure != nil {
		return ansible.Ref{}, b.failure
	}
	if err := request.Validate(); err != nil {
		return ansible.Ref{}, err
	}
	if request.Submitted.IsZero() {
		return ansible.Ref{}, &ansible.Error{Reason: ansible.Rejected, Message: "submitted is missing"}
	}
	r := b.runs[request.Key]
	if r == nil {
		b.order = append(b.order, request.Key)
		r = &run{request: request, status: ansible.Status{
			Ref: ansible.Ref{Key: request.Key, ID: strconv.Itoa(len(b.order))}, Playbook: request.Playbook, Check: request.Check, Phase: ansible.Queued,
		}}
		b.runs[request.Key] = r
	}
	return r.status.Ref, nil
}

// Status implements ansible.Backend.
func (b *Backend) Status(_ context.Context, ref ansible.Ref) (ansible.Status, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, err := b.find(ref)
	if err != nil {
		return ansible.Status{}, err
	}
	return r.status, nil
}

// Cancel implements ansible.Backend.
func (b *Backend) Cancel(_ context.Context, ref ansible.Ref) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancels++
	r, err := b.find(ref)
	if err != nil {
		return err
	}
	if !r.status.Phase.Ended() {
		r.status.Phase = ansible.Canceled
		b.tell()
	}
	return nil
}

// Follow implements ansible.Backend.
func (b *Backend) Follow(ctx context.Context, ref ansible.Ref, after int64, tell func(ansible.Event)) error {
	for {
		b.mu.Lock()
		r, err := b.find(ref)
		if err != nil {
			b.mu.Unlock()
			return err
		}
		var news []ansible.Event
		for _, e := range r.events {
			if e.Sequence > after {
				news = append(news, e)
			}
		}
		ended, changed := r.status.Phase.Ended(), b.changed
		b.mu.Unlock()
		for _, e := range news {
			tell(e)
			after = e.Sequence
		}
		if ended {
			return nil
		}
		select {
		case <-ctx.Done():
			return &ansible.Error{Reason: ansible.Unavailable, Message: ctx.Err().Error()}
		case <-changed:
		}
	}
}

// find returns a run; its error is that of a backend that fails, or that knows nothing of the run.
func (b *Backend) find(ref ansible.Ref) (*run, error) {
	if b.failure != nil {
		return nil, b.failure
	}
	if r := b.runs[ref.Key]; r != nil {
		return r, nil
	}
	return nil, &ansible.Error{Reason: ansible.UnknownRun, Message: fmt.Sprintf("there is no run %s", ref.Key)}
}

// tell wakes those who follow.
func (b *Backend) tell() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Fail has every call fail; with nil they work again. Runs stay.
func (b *Backend) Fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failure = err
	b.tell()
}

// Begin has a run begin.
func (b *Backend) Begin(key string) {
	b.change(key, func(r *run) {
		r.status.Phase = ansible.Running
		r.events = append(r.events, ansible.Event{Sequence: int64(len(r.events) + 1), Type: ansible.PlayStarted, Play: "play"})
	})
}

// Task has a run come to a task.
func (b *Backend) Task(key, name string, done, known int) {
	b.change(key, func(r *run) {
		r.status.Phase, r.status.Task, r.status.TasksDone, r.status.TasksKnown = ansible.Running, name, done, known
		r.events = append(r.events, ansible.Event{
			Sequence: int64(len(r.events) + 1), Type: ansible.TaskStarted, Task: name, TasksDone: done, TasksKnown: known,
		})
	})
}

// End has a run end, with this result on its first host.
func (b *Backend) End(key string, result ansible.HostResult) {
	b.change(key, func(r *run) {
		r.status.Phase, r.status.Message = result.Phase, result.Message
		r.status.AnsibleVersion, r.status.RolesVersion = "2.16.0", ansible.RolesVersion
		r.status.Hosts = map[string]ansible.HostResult{r.request.Hosts[0].Name: result}
	})
}

// Lose has the backend forget a run, as a restart of one that keeps nothing does.
func (b *Backend) Lose(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs, key)
	b.tell()
}

func (b *Backend) change(key string, change func(*run)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.runs[key]; r != nil {
		change(r)
	}
	b.tell()
}

// Requests are those that became runs, in their order.
func (b *Backend) Requests() []ansible.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	var requests []ansible.Request
	for _, key := range b.order {
		if r := b.runs[key]; r != nil {
			requests = append(requests, r.request)
		}
	}
	return requests
}

// Keys are those of all runs that ever were, in their order.
func (b *Backend) Keys() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.order...)
}

// Submits counts calls.
func (b *Backend) Submits() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.submits
}

// Cancels counts calls.
func (b *Backend) Cancels() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cancels
}
