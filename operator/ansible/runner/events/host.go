// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import "github.com/caplv/caplv/operator/ansible"

// maxChangedTasks is how many tasks that changed something are named.
const maxChangedTasks = 50

// Host is how far a run is on one host.
type Host struct {
	// Result counts what was told, and in the end what Ansible has counted. Its Phase is somebody else's to say.
	Result ansible.HostResult
	// Done and Known count tasks.
	Done, Known int
	// Task is the current task, and Progress what it said of itself.
	Task, Progress string
	// Working is true while the task has no result.
	Working bool
	// Counted says that Ansible ended, and has counted this host. Stopped is as in Message.
	Counted, Stopped bool
}

// Apply takes a message for this host in. It returns the event to tell, and false when there is none.
func (h *Host) Apply(m Message) (ansible.Event, bool) {
	switch m.Type {
	case Task:
		h.Done, h.Known, h.Task, h.Progress, h.Working = m.Done, m.Known, m.Task, "", true
	case Progress:
		h.Progress = m.Message
		m.Done, m.Known = h.Done, h.Known
	case Result:
		h.Progress, h.Working = "", false
		h.count(m)
		m.Done, m.Known = h.Done, h.Known
	case Stats:
		h.Counted, h.Stopped, h.Working = true, m.Stopped, false
		r := &h.Result
		r.OK, r.Changed, r.Failed, r.Unreachable, r.Skipped = m.OK, m.Changed, m.Failed, m.Unreachable, m.Skipped
		if r.Failed == 0 && r.Unreachable == 0 {
			// The playbook has rescued what had failed.
			r.FailedTask, r.Message = "", ""
		}
	default:
	}
	return m.event()
}

func (h *Host) count(m Message) {
	r := &h.Result
	switch m.Outcome {
	case OutcomeOK:
		r.OK++
	case OutcomeChanged:
		r.OK++
		r.Changed++
		if len(r.ChangedTasks) < maxChangedTasks {
			r.ChangedTasks = append(r.ChangedTasks, m.Task)
		}
	case OutcomeSkipped:
		r.Skipped++
	case OutcomeFailed:
		r.Failed++
		r.FailedTask, r.Message = m.Task, m.Message
	case OutcomeUnreachable:
		r.Unreachable++
		r.FailedTask, r.Message = m.Task, m.Message
	default:
	}
}
