// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package baseimage

import (
	"context"
	"sync"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
)

// backend keeps runs in memory, one for a key, and ends them when it is told to.
type backend struct {
	mu       sync.Mutex
	requests map[string]ansible.Request
	order    []string
	ended    map[string]chan ansible.Status
	results  map[string]ansible.Status
	submit   error
	// events are told to who follows.
	events []ansible.Event
}

func newBackend() *backend {
	return &backend{requests: map[string]ansible.Request{}, ended: map[string]chan ansible.Status{}, results: map[string]ansible.Status{}}
}

func (b *backend) Submit(_ context.Context, r ansible.Request) (ansible.Ref, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.submit != nil {
		return ansible.Ref{}, b.submit
	}
	if _, there := b.requests[r.Key]; !there {
		b.requests[r.Key] = r
		b.order = append(b.order, r.Key)
		b.ended[r.Key] = make(chan ansible.Status, 1)
	}
	return ansible.Ref{Key: r.Key, ID: "7"}, nil
}

func (b *backend) Follow(ctx context.Context, ref ansible.Ref, _ int64, tell func(ansible.Event)) error {
	b.mu.Lock()
	ended := b.ended[ref.Key]
	events := b.events
	b.mu.Unlock()
	if ended == nil {
		return &ansible.Error{Reason: ansible.UnknownRun, Message: "no such run"}
	}
	for _, e := range events {
		tell(e)
	}
	select {
	case status := <-ended:
		b.mu.Lock()
		b.results[ref.Key] = status
		b.mu.Unlock()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *backend) Status(_ context.Context, ref ansible.Ref) (ansible.Status, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended[ref.Key] == nil {
		return ansible.Status{}, &ansible.Error{Reason: ansible.UnknownRun, Message: "no such run"}
	}
	if result, ok := b.results[ref.Key]; ok {
		return result, nil
	}
	return ansible.Status{Ref: ref, Phase: ansible.Running}, nil
}

func (b *backend) Cancel(context.Context, ansible.Ref) error { return nil }

// keys are those of all runs, in their order.
func (b *backend) keys() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.order...)
}

// end ends a run.
func (b *backend) end(key string, phase ansible.Phase, result ansible.HostResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	result.Phase = phase
	b.ended[key] <- ansible.Status{Ref: ansible.Ref{Key: key, ID: "7"}, Phase: phase, Hosts: map[string]ansible.HostResult{"h.ns": result}}
}

// lose makes the backend forget everything, as a sidecar that was killed.
func (b *backend) lose() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = map[string]chan ansible.Status{}
}

// runners gives out one backend and one account.
type runners struct {
	backend *backend
	err     error
}

func (r *runners) Backend(context.Context, *infrav1.LibvirtHost) (ansible.Backend, error) {
	return r.backend, r.err
}

func (r *runners) Target(context.Context, *infrav1.LibvirtHost) (ansible.Host, error) {
	return ansible.Host{Name: "h.ns", Address: "192.0.2.1", Port: 22, User: "root", HostKeys: []string{"ssh-ed25519 AAAA"}}, nil
}

// fetcher has one file, and counts who asked and who has it.
type fetcher struct {
	mu            sync.Mutex
	asked, having int
	err           error
}

func (f *fetcher) Fetch(_ context.Context, _ string, _ infrav1.BaseImageSource, tell func(int64, int64)) (File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.err != nil {
		return File{}, f.err
	}
	tell(1<<20, 4<<20)
	f.having++
	return File{Path: "/cache/aa", SHA256: "aa", Size: 4 << 20, Release: func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.having--
	}}, nil
}
