// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"encoding/json"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/caplv/caplv/operator/ansible"
)

// job is one of AWX's jobs.
type job struct {
	ID          int        `json:"id"`
	Name        string     `json:"name"`
	Playbook    string     `json:"playbook"`
	Status      string     `json:"status"`
	JobType     string     `json:"job_type"`
	Limit       string     `json:"limit"`
	ExtraVars   string     `json:"extra_vars"`
	Explanation string     `json:"job_explanation"`
	Revision    string     `json:"scm_revision"`
	Started     *time.Time `json:"started"`
	Finished    *time.Time `json:"finished"`
	// EventsStored is not there in lists.
	EventsStored *bool `json:"event_processing_finished"`
}

// hostSummary is what Ansible has counted for one host.
type hostSummary struct {
	Host     string `json:"host_name"`
	OK       int    `json:"ok"`
	Changed  int    `json:"changed"`
	Dark     int    `json:"dark"`
	Failures int    `json:"failures"`
	Skipped  int    `json:"skipped"`
}

// jobEvent is one of a job's events.
type jobEvent struct {
	Counter int64     `json:"counter"`
	Event   string    `json:"event"`
	Created time.Time `json:"created"`
	Host    string    `json:"host_name"`
	Play    string    `json:"play"`
	Task    string    `json:"task"`
	Changed bool      `json:"changed"`
	Stdout  string    `json:"stdout"`
	Data    struct {
		Res          json.RawMessage `json:"res"`
		IgnoreErrors bool            `json:"ignore_errors"`
	} `json:"event_data"`
}

func (j *job) queued() bool {
	return j.Status == "new" || j.Status == "pending" || j.Status == "waiting"
}

func (j *job) ended() bool { return !j.queued() && j.Status != "running" }

func (j *job) hosts() []string {
	if j.Limit == "" {
		return nil
	}
	return strings.Split(j.Limit, ",")
}

func (j *job) playbook() ansible.Playbook {
	return ansible.Playbook(strings.TrimSuffix(path.Base(j.Playbook), path.Ext(j.Playbook)))
}

// overdue says whether a job has been running for longer than it may, at a time of AWX's clock.
func (j *job) overdue(now time.Time) bool {
	deadline := time.Duration(j.variables().Deadline) * time.Second
	if deadline <= 0 || j.Started == nil {
		return false
	}
	if j.Finished != nil {
		now = *j.Finished
	}
	return now.Sub(*j.Started) >= deadline
}

// phase is the job's own; what became of each host is in the summaries.
func (j *job) phase() ansible.Phase {
	switch {
	case j.queued():
		return ansible.Queued
	case j.Status == "running":
		return ansible.Running
	case j.Status == "successful":
		return ansible.Succeeded
	case j.timedOut():
		return ansible.TimedOut
	case j.Status == "canceled":
		return ansible.Canceled
	case j.Status == "error", lostPattern.MatchString(j.Explanation):
		return ansible.Lost
	}
	return ansible.Failed
}

// timedOut says whether a job was ended at its deadline: by AWX, which says so, or by Status, which cancels it.
func (j *job) timedOut() bool {
	return j.Status == "failed" && strings.Contains(strings.ToLower(j.Explanation), "timeout") || j.Status == "canceled" && j.overdue(time.Time{})
}

// lostPattern is how AWX explains a job whose process it has lost, with the status failed.
var lostPattern = regexp.MustCompile(
	"(?i)marked as (running|waiting)|so it has been marked as failed|was lost|execution node .* (offline|disappeared)|system shutdown|pod .* (deleted|evicted)")

// variables are those that Submit has added to a job.
func (j *job) variables() (v struct {
	Key      string `json:"caplv_run_key"`
	Deadline int64  `json:"caplv_run_deadline"`
}) {
	// A job of somebody else may have anything there.
	_ = json.Unmarshal([]byte(j.ExtraVars), &v)
	return v
}
