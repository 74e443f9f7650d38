// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caplv/caplv/operator/ansible"
)

const (
	// maxMessage bounds messages, maxTask names of tasks, and maxChanged how many of them are told.
	maxMessage = 1024
	maxTask    = 256
	maxChanged = 10
)

// severity orders how runs end, from best to worst.
var severity = []ansible.Phase{ansible.Succeeded, ansible.Failed, ansible.Unreachable, ansible.Canceled, ansible.TimedOut, ansible.Lost}

// worst is the worst phase of two that have ended.
func worst(a, b ansible.Phase) ansible.Phase {
	if slices.Index(severity, b) > slices.Index(severity, a) {
		return b
	}
	return a
}

// results makes the results by host of a job that has ended, and the phase of the whole run. strangers are hosts that nobody asked for.
func results(j *job, summaries []hostSummary, events []jobEvent) (hosts map[string]ansible.HostResult, phase ansible.Phase, strangers []string) {
	hosts = map[string]ansible.HostResult{}
	for _, name := range j.hosts() {
		hosts[name] = ansible.HostResult{Phase: withoutSummary(j), Message: whyWithout(j, name)}
	}
	for _, summary := range summaries {
		if _, asked := hosts[summary.Host]; !asked {
			strangers = append(strangers, summary.Host)
			continue
		}
		hosts[summary.Host] = ansible.HostResult{
			Phase: phaseOf(j, summary), OK: summary.OK, Changed: summary.Changed, Failed: summary.Failures, Unreachable: summary.Dark, Skipped: summary.Skipped,
		}
	}
	for _, event := range events {
		if host, asked := hosts[event.Host]; asked {
			hosts[event.Host] = withEvent(host, event)
		}
	}
	phase = j.phase()
	if phase == ansible.Failed && len(hosts) > 0 {
		// How each host ended says more.
		phase = ansible.Succeeded
	}
	for _, host := range hosts {
		phase = worst(phase, host.Phase)
	}
	if j.phase() != ansible.Succeeded {
		// AWX does not call a job failed in which nothing has failed.
		phase = worst(phase, ansible.Failed)
	}
	return hosts, phase, strangers
}

func phaseOf(j *job, summary hostSummary) ansible.Phase {
	switch {
	case summary.Dark > 0:
		return ansible.Unreachable
	case summary.Failures > 0:
		return ansible.Failed
	case j.phase() == ansible.Canceled, j.phase() == ansible.TimedOut, j.phase() == ansible.Lost:
		return j.phase()
	}
	return ansible.Succeeded
}

// withoutSummary is the phase of a host that Ansible has counted nothing for.
func withoutSummary(j *job) ansible.Phase {
	return worst(j.phase(), ansible.Failed)
}

func whyWithout(j *job, host string) string {
	if j.phase() == ansible.Succeeded {
		return fmt.Sprintf("AWX ran the playbook without this host: the inventory of the job template has no host %s", host)
	}
	return ""
}

func withEvent(host ansible.HostResult, event jobEvent) ansible.HostResult {
	switch event.Event {
	case "runner_on_failed":
		if !event.Data.IgnoreErrors && host.Phase == ansible.Failed {
			host.FailedTask, host.Message = line(event.Task, maxTask), messageOf(event.Data.Res)
		}
	case "runner_on_unreachable":
		if host.Phase == ansible.Unreachable {
			host.FailedTask, host.Message = line(event.Task, maxTask), messageOf(event.Data.Res)
		}
	case "runner_on_ok":
		task := line(event.Task, maxTask)
		if event.Changed && len(host.ChangedTasks) < maxChanged && !slices.Contains(host.ChangedTasks, task) {
			host.ChangedTasks = append(host.ChangedTasks, task)
		}
	}
	return host
}

// messageOf is what the result of a task says, in one line.
func messageOf(res json.RawMessage) string {
	var result struct {
		Message  any    `json:"msg"`
		Stderr   string `json:"stderr"`
		Reason   string `json:"reason"`
		Censored string `json:"censored"`
		Results  []struct {
			Message any  `json:"msg"`
			Failed  bool `json:"failed"`
		} `json:"results"`
	}
	if json.Unmarshal(res, &result) != nil {
		return ""
	}
	if result.Censored != "" {
		return "the result is hidden, since it may have secrets (no_log)"
	}
	var parts []string
	for _, item := range result.Results {
		if item.Failed {
			parts = append(parts, textOf(item.Message))
		}
	}
	if len(parts) == 0 {
		parts = []string{textOf(result.Message), result.Stderr, result.Reason}
	}
	parts = slices.DeleteFunc(parts, func(part string) bool { return strings.TrimSpace(part) == "" })
	return scrub(strings.Join(parts, "; "))
}

func textOf(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	content, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(content)
}

var (
	pemPattern        = regexp.MustCompile("(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|$)")
	assignmentPattern = regexp.MustCompile("(?i)\\b([A-Za-z0-9_-]*(?:password|passwd|passphrase|token|secret))(\\\\?[\"']?\\s*[:=]\\s*)(?:\"[^\"]*\"|'[^']*'|[^\\s,;}]+)")
	userinfoPattern   = regexp.MustCompile(`://[^/\s@:]+:[^/\s@]+@`)
)

// scrub takes out of a message what looks like a secret, and makes it one line.
func scrub(text string) string {
	text = pemPattern.ReplaceAllString(text, "[private key]")
	text = userinfoPattern.ReplaceAllString(text, "://[credentials]@")
	text = assignmentPattern.ReplaceAllString(text, "${1}${2}[hidden]")
	return line(text, maxMessage)
}
