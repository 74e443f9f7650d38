// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/runner/events"
	"github.com/caplv/caplv/operator/ansible/runner/queue"
	"github.com/caplv/caplv/operator/ansible/runner/scrub"
	"github.com/caplv/caplv/operator/ansible/runner/store"
)

// run is a request and what has become of it. Runner.mutex guards it.
type run struct {
	// request is dropped with its secrets once the run has ended.
	request *ansible.Request
	saved   store.Saved
	log     *store.Events
	hosts   map[string]*events.Host
	scrub   *scrub.Scrubber
	// batch carries it out; nil while it waits and once it has ended.
	batch *batch
	item  queue.Item
	// canceled is set by Cancel while others are carried out with it.
	canceled bool
	// alone is set when it is carried out again, after others have spoilt it.
	alone bool
}

func (r *run) status() *ansible.Status { return &r.saved.Status }

// newItem is how a request waits: for its hosts, by name and by place.
func newItem(request *ansible.Request, now time.Time) queue.Item {
	item := queue.Item{Key: request.Key, Kind: kindOf(request), Hosts: len(request.Hosts), Since: now}
	for i := range request.Hosts {
		item.Locks = append(item.Locks, "name "+request.Hosts[i].Name, "place "+request.Hosts[i].Place())
	}
	return item
}

// kindOf is equal for requests that one ansible-playbook can carry out: the hosts and their variables may differ.
func kindOf(request *ansible.Request) string {
	tags := slices.Sorted(slices.Values(request.SkipTags))
	return digestOf(request.Playbook, request.Check, slices.Compact(tags), request.Deadline, request.Variables)
}

// digestOfRequest tells requests apart that came with the same key. How to log in may have changed since, and is not compared; nor are
// other secrets, so that nobody can guess them from what is kept.
func digestOfRequest(request *ansible.Request) string {
	hosts := make([]ansible.Host, len(request.Hosts))
	for i := range request.Hosts {
		hosts[i] = request.Hosts[i]
		hosts[i].PrivateKey, hosts[i].BecomePassword = "", ""
		hosts[i].Variables = ansible.WithoutSecrets(hosts[i].Variables)
	}
	return digestOf(request.Playbook, request.Check, request.SkipTags, request.Deadline, ansible.WithoutSecrets(request.Variables), hosts)
}

// digestOf is for values that came from JSON, or go through it the same way.
func digestOf(values ...any) string {
	data, _ := json.Marshal(values) // They have been JSON.
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// snapshot is the status as it is now, the caller's own.
func (r *run) snapshot() ansible.Status {
	status := *r.status()
	if r.hosts == nil {
		return status
	}
	status.Hosts = make(map[string]ansible.HostResult, len(r.hosts))
	status.TasksDone, status.TasksKnown = 0, 0
	for name, h := range r.hosts {
		result := h.Result
		result.ChangedTasks = slices.Clone(result.ChangedTasks)
		if result.Phase == "" {
			result.Phase = status.Phase
		}
		status.Hosts[name] = result
		status.TasksDone += h.Done
		status.TasksKnown += h.Known
	}
	return status
}

// apply takes a message for one of its hosts in, and tells it.
func (r *run) apply(m events.Message, now time.Time) error {
	h := r.hosts[m.Host]
	m.Task, m.Message = r.scrub.Text(m.Task), r.scrub.Text(m.Message)
	event, told := h.Apply(m)
	if m.Type == events.Task || m.Type == events.Progress || r.status().Task == m.Task && m.Type == events.Result {
		r.status().Task, r.status().Progress = h.Task, h.Progress
	}
	if !told {
		return nil
	}
	event.Time = now
	return r.log.Add(event)
}

// reset forgets what an earlier attempt has told.
func (r *run) reset() {
	for name := range r.hosts {
		r.hosts[name] = &events.Host{}
	}
	r.status().Task, r.status().Progress = "", ""
}

// names are those of its hosts.
func (r *run) names() []string { return slices.Sorted(maps.Keys(r.hosts)) }
