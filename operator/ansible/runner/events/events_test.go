// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/ansible"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct{ name, data, err string }{
		{"a task", `{"type":"task","host":"a","task":"T","done":1,"known":3}`, ""},
		{"something newer beside what is known", `{"type":"end","later":true}`, ""},
		{"no JSON", `{"type":`, "not JSON"},
		{"no type", `{}`, `of type ""`},
		{"another type", `{"type":"x"}`, `of type "x"`},
		{"a result of nobody", `{"type":"result","outcome":"ok"}`, "names no host"},
		{"another outcome", `{"type":"result","host":"a","outcome":"fine"}`, `no outcome "fine"`},
		{"a negative count", `{"type":"task","host":"a","done":-1}`, "counts -1"},
		{"too much", `{"type":"end","message":"` + strings.Repeat("x", MaxMessage) + `"}`, "at most"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse([]byte(tt.data))
			if tt.err == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
			} else {
				NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tt.err)))
			}
		})
	}
}

func TestCleanCutsBetweenCharacters(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Clean("aäb\x1b[31m\r\n\tc\x00", 100)).To(Equal("aäb[31m\n\tc"))
	g.Expect(Clean("aä", 2)).To(Equal("a"))
	g.Expect(Clean("\xff", 100)).To(Equal("\uFFFD"))
}

func TestHost(t *testing.T) {
	task := func(name string, done int) Message {
		return Message{Type: Task, Host: "a", Task: name, Done: done, Known: 5}
	}
	result := func(outcome, message string) Message {
		return Message{Type: Result, Host: "a", Task: "T", Outcome: outcome, Message: message}
	}
	for _, tt := range []struct {
		name     string
		messages []Message
		host     Host
	}{
		{"is at a task", []Message{task("T", 1), {Type: Progress, Host: "a", Message: "5 %"}},
			Host{Done: 1, Known: 5, Task: "T", Progress: "5 %", Working: true}},
		{"has no progress once the task has ended", []Message{task("T", 1), {Type: Progress, Host: "a", Message: "5 %"}, result(OutcomeChanged, "")},
			Host{Done: 1, Known: 5, Task: "T", Result: ansible.HostResult{OK: 1, Changed: 1, ChangedTasks: []string{"T"}}}},
		{"has failed", []Message{result(OutcomeOK, ""), result(OutcomeSkipped, ""), result(OutcomeFailed, "why")},
			Host{Result: ansible.HostResult{OK: 1, Skipped: 1, Failed: 1, FailedTask: "T", Message: "why"}}},
		{"was rescued", []Message{result(OutcomeFailed, "why"), {Type: Stats, Host: "a", OK: 2}}, Host{Counted: true, Result: ansible.HostResult{OK: 2}}},
		{"is gone", []Message{result(OutcomeUnreachable, "why"), {Type: Stats, Host: "a", Unreachable: 1, Stopped: true}},
			Host{Counted: true, Stopped: true, Result: ansible.HostResult{Unreachable: 1, FailedTask: "T", Message: "why"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h Host
			for _, m := range tt.messages {
				h.Apply(m)
			}
			NewWithT(t).Expect(h).To(Equal(tt.host))
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"type":"result","host":"a","task":"T","outcome":"failed","message":"\u0000ä"}`))
	f.Add([]byte(`{"type":"stats","host":"a","ok":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(data)
		if err != nil {
			return
		}
		var h Host
		event, told := h.Apply(m)
		if !told {
			return
		}
		for _, text := range []string{event.Task, event.Message} {
			if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\x1b\r") {
				t.Fatalf("%q is told", text)
			}
		}
	})
}
