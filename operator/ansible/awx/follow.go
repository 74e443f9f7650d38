// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"

	"github.com/caplv/caplv/operator/ansible"
)

// longestPoll is how seldom Follow asks while nothing happens, and gapBound how long it waits for an event between two others: AWX stores them
// in any order.
const (
	longestPoll = 10 * time.Second
	gapBound    = 15 * time.Second
)

var errGap = errors.New("an event is missing")

// Cancel ends a job. One that has ended, AWX does not cancel, and that is fine.
func (b *Backend) Cancel(ctx context.Context, ref ansible.Ref) error {
	j, _, err := b.job(ctx, ref)
	if err == nil && !j.ended() {
		err = b.cancel(ctx, j.path())
	}
	return classify(err, "cancel jobs: those that the user has launched may be canceled, others need the role Admin on the job template")
}

func (b *Backend) cancel(ctx context.Context, path string) error {
	err := b.client.post(ctx, path+"cancel/", map[string]any{}, nil, true)
	if is(err, 405) {
		return nil
	}
	return err
}

// follower is one call of Follow.
type follower struct {
	backend *Backend
	tell    func(ansible.Event)
	// last is the counter up to which all events were looked at.
	last  int64
	tasks int
	// gap is since when an event is missing.
	gap time.Time
}

// Follow polls AWX for events, in order of their counters, which are their Sequence: those of a kind that is not told leave gaps. It asks every
// PollInterval while there is news, less often when there is none, and ends with a RunEnded once AWX has stored all events.
func (b *Backend) Follow(ctx context.Context, ref ansible.Ref, after int64, tell func(ansible.Event)) error {
	f := &follower{backend: b, tell: tell, last: max(0, after)}
	wait := b.config.PollInterval
	for {
		before := f.last
		done, err := f.poll(ctx, ref, after)
		if err != nil || done {
			return classify(err, mayRead)
		}
		wait = min(wait*2, longestPoll)
		if f.last > before {
			wait = b.config.PollInterval
		}
		if err := b.client.sleep(ctx, wait); err != nil {
			return unavailable("following the run was ended: %v", err)
		}
	}
}

func (f *follower) poll(ctx context.Context, ref ansible.Ref, after int64) (done bool, err error) {
	// First the job, then its events: what it says of them is true for those.
	status, err := f.backend.Status(ctx, ref)
	if err != nil {
		return false, err
	}
	if status.Phase == ansible.Queued {
		return false, nil
	}
	j, _, err := f.backend.job(ctx, ref)
	if err != nil {
		return false, err
	}
	if f.tasks == 0 && f.last > 0 {
		if f.tasks, err = f.tasksUpTo(ctx, j); err != nil {
			return false, err
		}
	}
	err = f.backend.events(ctx, j, url.Values{}, f.last, func(e jobEvent) error { return f.take(e, status.Phase.Ended()) })
	if err != nil && !errors.Is(err, errGap) {
		return false, err
	}
	if !status.Phase.Ended() {
		return false, nil
	}
	last, _, err := f.backend.lastEvent(ctx, j, "")
	if err != nil {
		return false, err
	}
	if end := last.Counter + 1; end > after {
		f.tell(ansible.Event{
			Sequence: end, Time: status.Finished, Type: ansible.RunEnded, Outcome: string(status.Phase), Message: status.Message, TasksDone: f.tasks,
		})
	}
	return true, nil
}

// take tells an event whose predecessors were told; after the end, or when it was waited for long enough, also without them.
func (f *follower) take(e jobEvent, ended bool) error {
	if e.Counter > f.last+1 && !ended {
		if f.gap.IsZero() {
			f.gap = f.backend.now()
		}
		if f.backend.now().Sub(f.gap) < gapBound {
			return errGap
		}
	}
	f.gap = time.Time{}
	f.last = e.Counter
	if e.Event == "playbook_on_task_start" {
		f.tasks++
	}
	if event, ok := eventOf(e); ok {
		event.TasksDone = f.tasks
		f.tell(event)
	}
	return nil
}

// tasksUpTo counts the tasks that somebody else was told of.
func (f *follower) tasksUpTo(ctx context.Context, j *job) (int, error) {
	var page struct {
		Count int `json:"count"`
	}
	query := url.Values{"event": {"playbook_on_task_start"}, "counter__lte": {strconv.FormatInt(f.last, 10)}, "page_size": {"1"}}
	_, err := f.backend.client.get(ctx, j.path()+"job_events/", query, &page)
	return page.Count, err
}

// eventOf is what an event of AWX is in the contract; false for kinds that it does not have.
func eventOf(e jobEvent) (ansible.Event, bool) {
	event := ansible.Event{Sequence: e.Counter, Time: e.Created, Play: line(e.Play, maxTask), Task: line(e.Task, maxTask), Host: line(e.Host, maxTask)}
	switch e.Event {
	case "playbook_on_play_start":
		event.Type = ansible.PlayStarted
	case "playbook_on_task_start", "playbook_on_handler_task_start":
		event.Type = ansible.TaskStarted
	case "runner_on_ok":
		event.Type, event.Outcome = ansible.HostResulted, "ok"
		if e.Changed {
			event.Outcome = "changed"
		}
	case "runner_on_failed":
		event.Type, event.Outcome, event.Message = ansible.HostResulted, "failed", messageOf(e.Data.Res)
	case "runner_on_unreachable":
		event.Type, event.Outcome, event.Message = ansible.HostResulted, "unreachable", messageOf(e.Data.Res)
	case "runner_on_skipped":
		event.Type, event.Outcome = ansible.HostResulted, "skipped"
	case "verbose":
		host, progress := progressOf(e.Stdout)
		if progress == "" {
			return ansible.Event{}, false
		}
		event.Type, event.Host, event.Message = ansible.Progressed, host, progress
	default:
		return ansible.Event{}, false
	}
	return event, true
}
