// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caplv/caplv/operator/ansible"
)

// eventsBound is how long after a job's end its events are waited for. AWX stores them behind the job.
const eventsBound = 2 * time.Minute

var mayRead = "read the jobs of the job templates, as the role Execute on them allows"

// Status tells how far a job is. A job that AWX has deleted is an error with the reason UnknownRun. While AWX is still storing the events of a
// job that has ended, it is Running: its results would not be complete. A job that is past its deadline is canceled here, unless AWX does that.
func (b *Backend) Status(ctx context.Context, ref ansible.Ref) (ansible.Status, error) {
	j, now, err := b.job(ctx, ref)
	if err != nil {
		return ansible.Status{}, classify(err, mayRead)
	}
	status := statusOf(j, ref)
	switch {
	case j.queued():
		return status, nil
	case !j.ended():
		err = b.addProgress(ctx, j, &status)
		if err == nil && j.overdue(now) {
			status.Message = "the run is past its deadline, and is being canceled"
			err = b.cancel(ctx, j.path())
		}
	case j.EventsStored != nil && !*j.EventsStored && j.Finished != nil && now.Sub(*j.Finished) < eventsBound:
		status.Phase, status.Finished = ansible.Running, time.Time{}
		status.Message = "the run has ended, and AWX is storing its last events"
		err = b.addProgress(ctx, j, &status)
	default:
		err = b.addResults(ctx, j, &status)
	}
	if err != nil {
		return ansible.Status{}, classify(err, mayRead)
	}
	return status, nil
}

// job asks for the job of a run, and for the time on AWX's clock.
func (b *Backend) job(ctx context.Context, ref ansible.Ref) (*job, time.Time, error) {
	number, err := strconv.Atoi(ref.ID)
	if err != nil || number <= 0 {
		return nil, time.Time{}, unknownRun("the run %s has no number of a job in AWX", line(ref.Key, 128))
	}
	var j job
	got, err := b.client.get(ctx, fmt.Sprintf("jobs/%d/", number), nil, &j)
	if is(err, 404) {
		return nil, time.Time{}, unknownRun("AWX has no job %d any more", number)
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	// An AWX that was set up anew begins to count again.
	if j.variables().Key != ref.Key {
		return nil, time.Time{}, unknownRun("job %d of AWX is not the run %s", number, line(ref.Key, 128))
	}
	return &j, got.time, nil
}

func (j *job) path() string { return fmt.Sprintf("jobs/%d/", j.ID) }

func statusOf(j *job, ref ansible.Ref) ansible.Status {
	status := ansible.Status{
		Ref: ref, Playbook: j.playbook(), Check: j.JobType == "check", Phase: j.phase(), RolesVersion: line(j.Revision, 64),
	}
	if j.Started != nil {
		status.Started = *j.Started
	}
	if j.queued() {
		status.Message = cmp.Or(scrub(j.Explanation), fmt.Sprintf("the run waits in AWX, as job %d", j.ID))
	}
	if j.ended() && j.Finished != nil {
		status.Finished = *j.Finished
	}
	return status
}

// addProgress adds what a run is at. How many tasks there will be, AWX does not know.
func (b *Backend) addProgress(ctx context.Context, j *job, status *ansible.Status) error {
	task, count, err := b.lastEvent(ctx, j, "playbook_on_task_start")
	if err != nil {
		return err
	}
	status.TasksDone, status.Task = count, line(task.Task, maxTask)
	output, _, err := b.lastEvent(ctx, j, "verbose")
	if err != nil {
		return err
	}
	if output.Counter > task.Counter {
		_, status.Progress = progressOf(output.Stdout)
	}
	return nil
}

// lastEvent is the last event of a kind, or of all when that is empty, and how many there are.
func (b *Backend) lastEvent(ctx context.Context, j *job, kind string) (event jobEvent, count int, err error) {
	var page struct {
		Count   int        `json:"count"`
		Results []jobEvent `json:"results"`
	}
	query := url.Values{"order_by": {"-counter"}, "page_size": {"1"}}
	if kind != "" {
		query.Set("event", kind)
	}
	_, err = b.client.get(ctx, j.path()+"job_events/", query, &page)
	if err == nil && len(page.Results) > 0 {
		event = page.Results[0]
	}
	return event, page.Count, err
}

// progressPattern is a line with which a long task says how far it is on a host; see plugins/action/base_image.py.
var progressPattern = regexp.MustCompile(`^\[([A-Za-z0-9._-]+)\] (.+)$`)

func progressOf(stdout string) (host, progress string) {
	match := progressPattern.FindStringSubmatch(strings.TrimSpace(stdout))
	if match == nil {
		return "", ""
	}
	return match[1], line(match[2], maxTask)
}

// addResults adds what became of a job that has ended.
func (b *Backend) addResults(ctx context.Context, j *job, status *ansible.Status) error {
	var summaries []hostSummary
	err := each(ctx, b.client, j.path()+"job_host_summaries/", url.Values{"order_by": {"id"}}, func(s *hostSummary) { summaries = append(summaries, *s) })
	if err != nil {
		return err
	}
	_, status.TasksDone, err = b.lastEvent(ctx, j, "playbook_on_task_start")
	if err != nil {
		return err
	}
	status.TasksKnown = status.TasksDone
	events, err := b.tellingEvents(ctx, j, summaries)
	if err != nil {
		return err
	}
	var strangers []string
	status.Hosts, status.Phase, strangers = results(j, summaries, events)
	switch {
	case len(strangers) > 0:
		status.Message = fmt.Sprintf("the run was also on %s, which nobody has asked for: look at the job template in AWX", line(strings.Join(strangers, ", "), 256))
	case j.Explanation != "":
		status.Message = scrub(j.Explanation)
	case j.phase() != ansible.Succeeded && len(summaries) == 0:
		status.Message = b.complaint(ctx, j)
	}
	spread(status)
	return nil
}

// spread gives hosts that have no message the run's.
func spread(status *ansible.Status) {
	for name, host := range status.Hosts {
		if host.Phase != ansible.Succeeded && host.Message == "" {
			host.Message = status.Message
			status.Hosts[name] = host
		}
	}
}

// tellingEvents are the events that failed tasks and changed tasks are named after.
func (b *Backend) tellingEvents(ctx context.Context, j *job, summaries []hostSummary) ([]jobEvent, error) {
	var events []jobEvent
	collect := func(e jobEvent) error { events = append(events, e); return nil }
	if j.phase() != ansible.Succeeded {
		for _, kind := range []string{"runner_on_failed", "runner_on_unreachable"} {
			if err := b.events(ctx, j, url.Values{"event": {kind}}, 0, collect); err != nil {
				return nil, err
			}
		}
	}
	if slices.ContainsFunc(summaries, func(s hostSummary) bool { return s.Changed > 0 }) {
		if err := b.events(ctx, j, url.Values{"event": {"runner_on_ok"}, "changed": {"true"}}, 0, collect); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(events, func(a, b jobEvent) int { return cmp.Compare(a.Counter, b.Counter) })
	return events, nil
}

// complaint is what Ansible, or AWX, said of a run that got nowhere.
func (b *Backend) complaint(ctx context.Context, j *job) string {
	const nothing = "the run ended, and nobody knows how: look at the output of the job in AWX"
	var output string
	if _, err := b.client.get(ctx, j.path()+"stdout/", url.Values{"format": {"txt"}}, &output); err != nil {
		return nothing
	}
	for text := range strings.Lines(output) {
		// The second is how ansible-core writes it from 2.19 on.
		for _, prefix := range []string{"ERROR! ", "[ERROR]: "} {
			if said, found := strings.CutPrefix(text, prefix); found {
				return scrub(said)
			}
		}
	}
	return nothing
}

// events goes through a job's events above a counter, in their order.
func (b *Backend) events(ctx context.Context, j *job, filter url.Values, after int64, tell func(jobEvent) error) error {
	size := 200
	for {
		query := maps.Clone(filter)
		query.Set("counter__gt", strconv.FormatInt(after, 10))
		query.Set("order_by", "counter")
		query.Set("page_size", strconv.Itoa(size))
		var page struct {
			Next    *string    `json:"next"`
			Results []jobEvent `json:"results"`
		}
		_, err := b.client.get(ctx, j.path()+"job_events/", query, &page)
		if errors.Is(err, errTooLarge) && size > 1 {
			// Events may have hundreds of kilobytes each.
			size = max(1, size/8)
			continue
		}
		if err != nil {
			return err
		}
		for _, event := range page.Results {
			after = event.Counter
			if err := tell(event); err != nil {
				return err
			}
		}
		// Not AWX's next: that counts pages, and events are still coming in.
		if page.Next == nil || *page.Next == "" || len(page.Results) == 0 {
			return nil
		}
	}
}

// each goes through the pages of a list.
func each[T any](ctx context.Context, c *client, path string, query url.Values, do func(*T)) error {
	_, err := find(ctx, c, path, query, func(entry *T) (bool, error) { do(entry); return false, nil })
	return err
}
