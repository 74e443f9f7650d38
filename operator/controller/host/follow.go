// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/job"
)

const (
	// newsInterval is how often, at most, the reconciler is told of a run that goes on.
	newsInterval = 3 * time.Second
	// firstAsk and maxAsk bound the pause before a backend that does not answer is asked again.
	firstAsk = time.Second
	maxAsk   = 30 * time.Second
)

// report is what is known of a run.
type report struct {
	status ansible.Status
	// err is why nothing newer is known.
	err error
	// lost says that the backend has no record of the run.
	lost bool
}

// follower follows runs, each in a job of its own that wakes the reconciler.
type follower struct {
	jobs *job.Runner
	// interval is newsInterval, shorter in tests.
	interval time.Duration

	mu      sync.Mutex
	reports map[string]report
}

func newFollower(jobs *job.Runner) *follower {
	return &follower{jobs: jobs, interval: newsInterval, reports: map[string]report{}}
}

// look returns what is known of a run, and begins to follow it unless that is done already. It does not wait.
func (f *follower) look(lh *infrav1.LibvirtHost, backend ansible.Backend, ref ansible.Ref) (report, bool) {
	object := lh.DeepCopy()
	f.jobs.Start(ref.Key, object, func(ctx context.Context) error {
		f.follow(ctx, object, backend, ref)
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	said, known := f.reports[ref.Key]
	return said, known
}

// forget ends following a run.
func (f *follower) forget(ctx context.Context, key string) error {
	if err := f.jobs.Forget(ctx, key); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.reports, key)
	return nil
}

// follow is the job. It ends with the run, or when the backend knows nothing of it.
func (f *follower) follow(ctx context.Context, object client.Object, backend ansible.Backend, ref ansible.Ref) {
	var seen int64
	pause := firstAsk
	for ctx.Err() == nil {
		status, err := backend.Status(ctx, ref)
		switch {
		case err != nil && ansible.ReasonOf(err) == ansible.UnknownRun:
			f.update(ref.Key, func(r *report) { r.lost, r.err = true, nil })
			return
		case err == nil && status.Phase.Ended():
			f.update(ref.Key, func(r *report) { r.status, r.err = status, nil })
			return
		case err == nil:
			f.update(ref.Key, func(r *report) { r.status, r.err = status, nil })
			f.jobs.Wake(ctx, object)
			if err = f.stream(ctx, object, backend, ref, &seen); err == nil || ansible.ReasonOf(err) == ansible.UnknownRun {
				// The run has ended, or is gone; the status says which. A backend that says neither is not asked in a circle.
				pause = firstAsk
				f.sleep(ctx, min(firstAsk, f.interval)/8)
				continue
			}
		}
		f.update(ref.Key, func(r *report) { r.err = err })
		f.jobs.Wake(ctx, object)
		f.sleep(ctx, pause)
		pause = min(2*pause, maxAsk)
	}
}

// stream takes in a run's events until they end.
func (f *follower) stream(ctx context.Context, object client.Object, backend ansible.Backend, ref ansible.Ref, seen *int64) error {
	ctx, cancel := context.WithCancel(ctx)
	news := make(chan struct{}, 1)
	var teller sync.WaitGroup
	teller.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-news:
				f.jobs.Wake(ctx, object)
				f.sleep(ctx, f.interval)
			}
		}
	})
	defer teller.Wait()
	defer cancel()
	return backend.Follow(ctx, ref, *seen, func(e ansible.Event) {
		*seen = max(*seen, e.Sequence)
		f.update(ref.Key, func(r *report) { note(&r.status, e) })
		select {
		case news <- struct{}{}:
		default:
		}
	})
}

func note(status *ansible.Status, e ansible.Event) {
	if e.TasksKnown > 0 {
		status.TasksDone, status.TasksKnown = e.TasksDone, e.TasksKnown
	}
	switch e.Type {
	case ansible.PlayStarted:
		status.Phase = ansible.Running
	case ansible.TaskStarted:
		status.Phase, status.Task, status.Progress = ansible.Running, e.Task, ""
	case ansible.Progressed:
		status.Progress = e.Message
	}
}

func (f *follower) update(key string, change func(*report)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.reports[key]
	change(&r)
	f.reports[key] = r
}

func (*follower) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
