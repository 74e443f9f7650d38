// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/runner/events"
	"github.com/caplv/caplv/operator/ansible/runner/process"
)

// ending is how a batch ended.
type ending struct {
	// ended is why it was ended from here: TimedOut, Canceled, or empty.
	ended ansible.Phase
	// complete says that Ansible has told its last event.
	complete bool
	exit     process.Exit
	// output is the last that it printed.
	output string
}

// outcome says how the run ended on a host, and why, where the host has no message of its own. What Ansible has counted decides, never its
// exit code: a run whose last event is missing has not ended.
func outcome(h *events.Host, e ending) (ansible.Phase, string) {
	r := &h.Result
	switch {
	case r.Unreachable > 0:
		return ansible.Unreachable, ""
	case r.Failed > 0 && (h.Counted || e.ended != "" || r.FailedTask != ""):
		return ansible.Failed, ""
	case e.ended == ansible.TimedOut && h.Working:
		return ansible.TimedOut, fmt.Sprintf("The task %q was ended at the deadline", h.Task)
	case e.ended == ansible.TimedOut:
		return ansible.TimedOut, "The run was ended at the deadline"
	case e.ended != "":
		return e.ended, "The run was ended"
	case !e.complete && e.exit.Signal == "" && e.exit.Code != 0 && h.Done == 0:
		return ansible.Failed, "ansible-playbook " + e.exit.String() + ": " + e.output
	case !e.complete:
		return ansible.Lost, "ansible-playbook " + e.exit.String() + ", and has not said how the run ended: " + e.output
	case h.Stopped:
		return ansible.Failed, "The playbook was stopped, because it failed on another host"
	case !h.Counted:
		return ansible.Failed, "No task was carried out on this host: " + e.output
	}
	return ansible.Succeeded, ""
}

// innocent says that a host has ended as it did because of others: it was stopped with them, or waited for them when the deadline came.
func innocent(h *events.Host, phase ansible.Phase) bool {
	own := h.Result.Failed > 0 || h.Result.Unreachable > 0
	return !own && (phase == ansible.Failed && h.Stopped || phase == ansible.TimedOut && !h.Working)
}

// severity orders phases: that of a run is its hosts' worst.
var severity = map[ansible.Phase]int{
	ansible.Succeeded: 1, ansible.Canceled: 2, ansible.Failed: 3, ansible.Unreachable: 4, ansible.TimedOut: 5, ansible.Lost: 6,
}

func worst(a, b ansible.Phase) ansible.Phase {
	if severity[b] > severity[a] {
		return b
	}
	return a
}
