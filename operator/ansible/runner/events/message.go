// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package events reads what the callback plugin run_events says, and makes of it how far a host is.
package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/caplv/caplv/operator/ansible"
)

// MaxMessage is the size of the largest message, in bytes.
const MaxMessage = 16 << 10

const (
	maxName = 256
	maxText = 1024
)

// Type is what a Message tells of.
type Type string

// The types of messages, in the order in which a run has them.
const (
	Start    Type = "start"
	Play     Type = "play"
	Task     Type = "task"
	Progress Type = "progress"
	Result   Type = "result"
	Stats    Type = "stats"
	End      Type = "end"
)

// Message is one message of the plugin.
type Message struct {
	Type    Type   `json:"type"`
	Host    string `json:"host"`
	Play    string `json:"play"`
	Task    string `json:"task"`
	Outcome string `json:"outcome"`
	Message string `json:"message"`
	// Done and Known count the host's tasks; of a Start, Known counts those of the playbook itself.
	Done  int `json:"done"`
	Known int `json:"known"`
	// The counts of a Stats.
	OK          int `json:"ok"`
	Changed     int `json:"changed"`
	Failed      int `json:"failed"`
	Unreachable int `json:"unreachable"`
	Skipped     int `json:"skipped"`
	// Stopped says that the host is out of a play: it failed, could not be reached, or was stopped since another host has.
	Stopped bool `json:"stopped"`
}

// The outcomes of a Result.
const (
	OutcomeOK          = "ok"
	OutcomeChanged     = "changed"
	OutcomeFailed      = "failed"
	OutcomeUnreachable = "unreachable"
	OutcomeSkipped     = "skipped"
)

// Parse reads a message. Texts are cut to what an ansible.Event may hold, and have no control characters but newlines and tabs.
func Parse(data []byte) (Message, error) {
	var m Message
	if len(data) > MaxMessage {
		return m, fmt.Errorf("a message has %d bytes; at most %d are read", len(data), MaxMessage)
	}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&m); err != nil {
		return Message{}, fmt.Errorf("a message is not JSON: %w", err)
	}
	switch m.Type {
	case Start, Play, End:
	case Task, Progress, Result, Stats:
		if m.Host == "" {
			return Message{}, fmt.Errorf("a message of type %q names no host", m.Type)
		}
	default:
		return Message{}, fmt.Errorf("there are no messages of type %q", m.Type)
	}
	if m.Type == Result {
		switch m.Outcome {
		case OutcomeOK, OutcomeChanged, OutcomeFailed, OutcomeUnreachable, OutcomeSkipped:
		default:
			return Message{}, fmt.Errorf("there is no outcome %q", m.Outcome)
		}
	}
	for _, n := range []int{m.Done, m.Known, m.OK, m.Changed, m.Failed, m.Unreachable, m.Skipped} {
		if n < 0 || n > 1<<30 {
			return Message{}, fmt.Errorf("a message counts %d", n)
		}
	}
	m.Play, m.Task, m.Message = Clean(m.Play, maxName), Clean(m.Task, maxName), Clean(m.Message, maxText)
	return m, nil
}

// Clean returns the beginning of a text, at most limit bytes, as valid UTF-8 without control characters but newlines and tabs.
func Clean(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// CleanMessage cleans a text for the Message of an event, a host or a run.
func CleanMessage(text string) string { return Clean(text, maxText) }

// event is what callers are told of a message that is about a host.
func (m *Message) event() (ansible.Event, bool) {
	e := ansible.Event{Task: m.Task, Host: m.Host, Message: m.Message, TasksDone: m.Done, TasksKnown: m.Known}
	switch m.Type {
	case Task:
		e.Type = ansible.TaskStarted
	case Progress:
		e.Type = ansible.Progressed
	case Result:
		e.Type, e.Outcome = ansible.HostResulted, m.Outcome
	default:
		return ansible.Event{}, false
	}
	return e, true
}
