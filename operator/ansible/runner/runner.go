// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runner carries runs out, with ansible-playbook on this machine: it is the sidecar's inside. Runs of one kind are carried out
// together, in one process with a fork for each of several hosts.
package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/runner/events"
	"github.com/caplv/caplv/operator/ansible/runner/queue"
	"github.com/caplv/caplv/operator/ansible/runner/scrub"
	"github.com/caplv/caplv/operator/ansible/runner/store"
	"github.com/caplv/caplv/operator/ansible/runner/workdir"
)

// Runner is an ansible.Backend.
type Runner struct {
	options         Options
	log             logr.Logger
	root            workdir.Root
	store           *store.Store
	lock            func()
	metrics         *metrics
	ansible, roles  string
	clock           func() time.Time
	batchesFinished sync.WaitGroup

	mutex    sync.Mutex
	runs     map[string]*run
	queue    queue.Queue
	batches  map[*batch]struct{}
	timer    *time.Timer
	stopping bool
}

var _ ansible.Backend = (*Runner)(nil)

// New starts a Runner. What an earlier one has left is ended and removed, and its runs that had not ended are Lost.
func New(ctx context.Context, options Options) (*Runner, error) {
	if err := options.complete(); err != nil {
		return nil, err
	}
	r := &Runner{
		options: options, log: options.Log, clock: time.Now, runs: map[string]*run{}, batches: map[*batch]struct{}{},
		queue: queue.Queue{Limit: options.MaxQueue, MaxHosts: options.MaxHosts, Window: options.Window},
	}
	var err error
	if r.root, err = workdir.Open(options.WorkDir); err != nil {
		return nil, fmt.Errorf("the working directory: %w", err)
	}
	if r.store, err = store.Open(options.ArtifactsDir, options.KeepRuns, options.KeepBytes); err != nil {
		return nil, fmt.Errorf("the directory of artifacts: %w", err)
	}
	if r.lock, err = lockFile(r.options.ArtifactsDir, r.root.Marker()); err != nil {
		return nil, err
	}
	if r.ansible, err = ansibleVersion(ctx, &r.options); err == nil {
		r.roles, err = rolesVersion(&r.options)
	}
	if err == nil {
		r.metrics = newMetrics(r)
		err = r.recover()
	}
	if err != nil {
		r.lock()
		return nil, err
	}
	return r, nil
}

// Submit implements ansible.Backend.
func (r *Runner) Submit(_ context.Context, request ansible.Request) (ansible.Ref, error) {
	if err := r.check(&request); err != nil {
		return ansible.Ref{}, err
	}
	digest := digestOfRequest(&request)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if known := r.runs[request.Key]; known != nil {
		if known.saved.Digest != digest {
			return ansible.Ref{}, rejected("key %q is that of another run, which asked for something else; use a new one", request.Key)
		}
		return known.status().Ref, nil
	}
	if r.stopping {
		return ansible.Ref{}, &ansible.Error{Reason: ansible.Unavailable, Message: "the sidecar is being stopped; try again"}
	}
	if r.queue.Len() >= r.options.MaxQueue {
		return ansible.Ref{}, &ansible.Error{Reason: ansible.Overloaded, Message: fmt.Sprintf("%d runs wait already; try again later", r.queue.Len())}
	}
	added, err := r.add(&request, digest)
	if err != nil {
		return ansible.Ref{}, err
	}
	r.dispatch()
	return added.status().Ref, nil
}

// check refuses what can never be carried out.
func (r *Runner) check(request *ansible.Request) error {
	if err := request.Validate(); err != nil {
		return err
	}
	if len(request.Hosts) > r.options.MaxHosts {
		return rejected("hosts has %d entries; a run of the sidecar has at most %d", len(request.Hosts), r.options.MaxHosts)
	}
	for i := range request.Hosts {
		if request.Hosts[i].PrivateKey == "" {
			return rejected("hosts[%d].privateKey is empty; the sidecar logs in with a key", i)
		}
	}
	return nil
}

func rejected(format string, args ...any) error {
	return &ansible.Error{Reason: ansible.Rejected, Message: fmt.Sprintf(format, args...)}
}

// add records a run before anybody is told that it is there.
func (r *Runner) add(request *ansible.Request, digest string) (*run, error) {
	added := &run{
		request: request, scrub: scrub.New(request.Secrets()), hosts: map[string]*events.Host{}, item: newItem(request, r.clock()),
		saved: store.Saved{Digest: digest, Status: ansible.Status{
			Ref: ansible.Ref{Key: request.Key}, Playbook: request.Playbook, Check: request.Check, Phase: ansible.Queued,
			AnsibleVersion: r.ansible, RolesVersion: r.roles,
		}},
	}
	for i := range request.Hosts {
		added.hosts[request.Hosts[i].Name] = &events.Host{}
	}
	err := r.save(added)
	if err == nil {
		added.log, err = r.store.Events(request.Key)
	}
	if err == nil {
		err = r.queue.Add(added.item)
	}
	if err != nil {
		r.log.Error(err, "Recording a run failed", "run", request.Key)
		return nil, &ansible.Error{Reason: ansible.Unavailable, Message: "the sidecar cannot record the run: " + err.Error()}
	}
	r.runs[request.Key] = added
	r.log.Info("Queued a run", "run", request.Key, "playbook", request.Playbook, "check", request.Check, "hosts", added.names())
	return added, nil
}

// save writes down where a run is.
func (r *Runner) save(a *run) error {
	saved := a.saved
	saved.Status = a.snapshot()
	return r.store.Save(saved)
}

// Status implements ansible.Backend.
func (r *Runner) Status(_ context.Context, ref ansible.Ref) (ansible.Status, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	a, err := r.find(ref)
	if err != nil {
		return ansible.Status{}, err
	}
	status := a.snapshot()
	switch {
	case status.Phase == ansible.Queued && r.queue.Busy(a.item):
		status.Message = "Waits for another run on the host to end"
	case status.Phase == ansible.Queued:
		status.Message = "Waits for its turn"
	case status.Phase == ansible.Running && a.canceled:
		status.Message = "Canceled; it ends with the runs that it is carried out with"
	}
	return status, nil
}

func (r *Runner) find(ref ansible.Ref) (*run, error) {
	if a := r.runs[ref.Key]; a != nil {
		return a, nil
	}
	return nil, &ansible.Error{Reason: ansible.UnknownRun, Message: fmt.Sprintf("the sidecar has no record of run %q", ref.Key)}
}

// Cancel implements ansible.Backend. A run that is carried out with others is only marked: its process is theirs as well, and goes on until
// they have ended or are canceled too.
func (r *Runner) Cancel(_ context.Context, ref ansible.Ref) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	a, err := r.find(ref)
	if err != nil || a.status().Phase.Ended() {
		return err
	}
	r.log.Info("Canceling a run", "run", ref.Key)
	a.canceled = true
	if a.batch == nil {
		r.queue.Remove(ref.Key)
		r.endUncarried(a, "Canceled before it began")
		r.dispatch()
		return nil
	}
	for _, other := range a.batch.runs {
		if !other.canceled {
			return nil
		}
	}
	a.batch.end(ansible.Canceled)
	return nil
}

// Follow implements ansible.Backend.
func (r *Runner) Follow(ctx context.Context, ref ansible.Ref, after int64, tell func(ansible.Event)) error {
	r.mutex.Lock()
	a, err := r.find(ref)
	r.mutex.Unlock()
	if err != nil {
		return err
	}
	if err := a.log.Follow(ctx.Done(), after, tell); err != nil {
		return &ansible.Error{Reason: ansible.Unavailable, Message: "reading the events: " + err.Error()}
	}
	return ctx.Err()
}

// Stop ends all runs, and returns once none of their processes is left. Runs are Canceled. After it nothing begins any more.
func (r *Runner) Stop() {
	r.mutex.Lock()
	r.stopping = true
	for _, a := range r.runs {
		if a.status().Phase == ansible.Queued && r.queue.Remove(a.item.Key) {
			r.endUncarried(a, "The sidecar was stopped before it began")
		}
	}
	for b := range r.batches {
		b.end(ansible.Canceled)
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mutex.Unlock()
	r.batchesFinished.Wait()
	r.lock()
}

// errTaken is returned when another runner uses a directory.
var errTaken = errors.New("is used by another ansible-runner")

// lockFile makes the directories ours until the returned function is called, or this process ends.
func lockFile(dirs ...string) (func(), error) {
	var fds []int
	release := func() {
		for _, fd := range fds {
			_ = syscall.Close(fd)
		}
	}
	for _, dir := range dirs {
		fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
		if err != nil {
			release()
			return nil, fmt.Errorf("opening %s: %w", dir, err)
		}
		fds = append(fds, fd)
		if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			release()
			return nil, fmt.Errorf("%s %w", dir, errTaken)
		}
	}
	return release, nil
}
