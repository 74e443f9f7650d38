// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostsetup

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
)

// Bounds of the texts in status, in bytes.
const (
	maxShort    = 256
	maxProgress = 512
	maxMessage  = 2048
	maxVersion  = 64
	maxTasks    = 10
)

// keyBlock is a private key, or what a cut has left of one.
var keyBlock = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)

// Scrub makes a text of a backend fit to be shown: without private keys, the given secrets and control characters. Backends leave secrets out
// themselves; what gets through in spite of that ends here.
func Scrub(text string, secrets ...string) string {
	text = keyBlock.ReplaceAllString(text, "(private key)")
	for _, secret := range secrets {
		// Short ones would tear holes into words, and are guessed anyway.
		if secret = strings.TrimSpace(secret); len(secret) >= 4 {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r == utf8.RuneError || unicode.IsControl(r):
			return -1
		}
		return r
	}, text))
}

// Note puts how far a run is into its record.
func Note(run *infrav1.BootstrapRun, said ansible.Status, host string, secrets ...string) {
	run.Phase = infrav1.RunPhase(clip(string(said.Phase), 32))
	run.Progress = clip(Scrub(progress(said), secrets...), maxProgress)
	result := said.Hosts[host]
	run.OK, run.Changed, run.Skipped = count(result.OK), count(result.Changed), count(result.Skipped)
	run.Failed = count(result.Failed + result.Unreachable)
	run.ChangedTasks = nil
	for _, task := range result.ChangedTasks[:min(len(result.ChangedTasks), maxTasks)] {
		run.ChangedTasks = append(run.ChangedTasks, clip(Scrub(task, secrets...), maxShort))
	}
	run.FailedTask = clip(Scrub(result.FailedTask, secrets...), maxShort)
	message := result.Message
	if message == "" {
		message = said.Message
	}
	run.Message = clip(Scrub(message, secrets...), maxMessage)
}

// End puts how a run has ended into the status of its host.
func End(st *infrav1.HostBootstrapStatus, said ansible.Status, host string, now metav1.Time, secrets ...string) {
	run := st.Run
	Note(run, said, host, secrets...)
	run.Progress, run.FinishedAt = "", &now
	if said.RolesVersion != "" {
		st.RolesVersion = clip(Scrub(said.RolesVersion), maxVersion)
	}
	if said.AnsibleVersion != "" {
		st.AnsibleVersion = clip(Scrub(said.AnsibleVersion), maxVersion)
	}
	done := succeeded(run)
	switch {
	case run.Playbook != string(ansible.OnboardHost):
	case done && run.Mode == infrav1.BootstrapCheck:
		st.CheckedAt = &now
	case done:
		st.AppliedStateHash, st.AppliedAt, st.CheckedAt = run.DesiredStateHash, &now, &now
	case untouched(run) && st.TouchedAt != nil && st.TouchedAt.Equal(&run.SubmittedAt):
		st.TouchedAt = nil
	}
}

// untouched says whether a run has ended before it did anything on its host.
func untouched(run *infrav1.BootstrapRun) bool {
	return run.Phase == infrav1.RunRejected || run.Phase == infrav1.RunPhase(ansible.Unreachable) && run.OK == 0 && run.Changed == 0
}

// progress is for people.
func progress(said ansible.Status) string {
	if said.Phase == ansible.Queued {
		return withDetail("waits for its turn", said.Message)
	}
	if said.TasksKnown == 0 && said.Task == "" {
		return "begins"
	}
	text := fmt.Sprintf("task %d", said.TasksDone)
	// Tasks of a role are known from its beginning on; the last one that is known says nothing of how many follow.
	if said.TasksKnown > said.TasksDone {
		text += fmt.Sprintf(" of %d", said.TasksKnown)
	}
	return withDetail(withDetail(text, said.Task), said.Progress)
}

func withDetail(text, detail string) string {
	if detail == "" {
		return text
	}
	return text + ": " + detail
}

func count(n int) int32 { return int32(min(max(n, 0), 1<<30)) }

// clip cuts a text to a number of bytes.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}
