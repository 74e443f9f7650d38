// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// job is a job, or the workflow that stands for a sliced one. The server's lock guards it.
type job struct {
	id       int
	workflow bool
	template object
	user     int

	playbook, limit, jobType, skipTags string
	timeout                            int
	// variables are all, and trusted those of the template, which may be Jinja templates.
	variables, trusted map[string]any

	status, explanation        string
	created, started, finished *time.Time

	// events are all that ansible-playbook has reported, and visible says since when each is stored.
	events  []object
	visible []time.Time
	stored  bool
	output  string

	canceled chan struct{}
	once     sync.Once
}

func now() *time.Time {
	t := time.Now().UTC()
	return &t
}

func (j *job) ended() bool { return j.finished != nil }

// stop asks for the job's end.
func (j *job) stop() { j.once.Do(func() { close(j.canceled) }) }

func (s *Server) renderJob(j *job, whole bool) object {
	o := object{
		"id": j.id, "type": "job", "name": j.template["name"], "job_template": j.template.id(), "playbook": j.playbook, "status": j.status, "limit": j.limit,
		"job_type": j.jobType, "skip_tags": j.skipTags, "extra_vars": encode(j.variables), "job_explanation": j.explanation, "launch_type": "manual",
		"created": stamp(j.created), "started": stamp(j.started), "finished": stamp(j.finished), "failed": j.status == "failed" || j.status == "error",
		"scm_revision": "0123456789abcdef0123456789abcdef01234567", "artifacts": object{},
	}
	if whole {
		o["event_processing_finished"] = j.stored && len(j.shown()) == len(j.events)
	} else if s.traps.NoVariablesInLists {
		delete(o, "extra_vars")
	}
	return o
}

func stamp(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.Format("2006-01-02T15:04:05.000000Z")
}

// shown are the events that are stored by now.
func (j *job) shown() []object {
	var shown []object
	for i, event := range j.events {
		if !time.Now().Before(j.visible[i]) {
			shown = append(shown, event)
		}
	}
	return shown
}

// summaries are the counts by host, which are stored with the event that has them.
func (j *job) summaries() []object {
	var found []object
	for _, event := range j.shown() {
		if event["event"] != "playbook_on_stats" {
			continue
		}
		data, _ := event["event_data"].(map[string]any)
		processed, _ := data["processed"].(map[string]any)
		for host := range processed {
			summary := object{"id": len(found) + 1, "host_name": host}
			for _, name := range []string{"ok", "changed", "dark", "failures", "skipped", "processed", "ignored", "rescued"} {
				counts, _ := data[name].(map[string]any)
				summary[name] = number(counts[host])
			}
			summary["failed"] = number(summary["failures"])+number(summary["dark"]) > 0
			found = append(found, summary)
		}
	}
	return found
}

func (s *Server) jobRequest(c *call) (reply, error) {
	if c.name == "" {
		var list []object
		for _, j := range s.jobs {
			if !j.workflow && s.store.allows(c.user, "job_templates", j.template.id(), "admin_role", "execute_role", "read_role") {
				list = append(list, s.renderJob(j, false))
			}
		}
		return reply{paged: true, list: list}, nil
	}
	id, _ := strconv.Atoi(c.name)
	for _, j := range s.jobs {
		if j.id == id && j.workflow == (c.resource == "workflow_jobs") {
			return s.oneJobRequest(c, j)
		}
	}
	return reply{}, nil
}

func (s *Server) oneJobRequest(c *call, j *job) (reply, error) {
	switch c.list {
	case "":
		return reply{status: http.StatusOK, body: s.renderJob(j, true)}, nil
	case "job_events":
		return reply{paged: true, list: j.shown()}, nil
	case "job_host_summaries":
		return reply{paged: true, list: j.summaries()}, nil
	case "stdout":
		return reply{text: j.output + "\n"}, nil
	case "cancel":
		if c.method == http.MethodGet {
			return reply{status: http.StatusOK, body: object{"can_cancel": !j.ended()}}, nil
		}
		if j.user != c.user && !s.store.allows(c.user, "job_templates", j.template.id(), "admin_role") {
			return reply{}, forbiddenError("You do not have permission to perform this action.")
		}
		if j.ended() {
			return reply{status: http.StatusMethodNotAllowed, body: object{"detail": "Method \"POST\" not allowed."}}, nil
		}
		j.stop()
		if j.workflow {
			j.status, j.finished = "canceled", now()
		}
		return reply{status: http.StatusAccepted, body: object{}}, nil
	}
	return reply{}, nil
}

// Jobs are the jobs so far, as the API shows them.
func (s *Server) Jobs() []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []map[string]any
	for _, j := range s.jobs {
		shown := s.renderJob(j, true)
		if j.workflow {
			shown["type"] = "workflow_job"
		}
		all = append(all, shown)
	}
	return all
}

// Forgotten deletes a job, as AWX's clean-up does.
func (s *Server) Forgotten(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, j := range s.jobs {
		if j.id == id {
			s.jobs = append(s.jobs[:i], s.jobs[i+1:]...)
			return
		}
	}
}

// End makes a job end as AWX would have it end on its own, such as with the status error; its process is ended.
func (s *Server) End(id int, status, explanation string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if j.id == id && !j.ended() {
			j.status, j.explanation, j.finished = status, explanation, now()
			j.stop()
		}
	}
}
