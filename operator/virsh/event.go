// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"strings"
	"time"
)

// Event is one line of virsh event. It says that something has happened to a domain; what the domain is now is to be observed.
type Event struct {
	// Time is when virsh wrote the line, by the host's clock; zero when it did not say.
	Time time.Time
	// Kind is libvirt's name of the event, such as lifecycle or io-error-reason.
	Kind string
	// Domain is the domain's name.
	Domain string
	// Detail is the rest in libvirt's words, such as "Stopped Destroyed".
	Detail string
}

// stateEvents are the kinds after which a domain may be in another state.
var stateEvents = map[string]bool{
	"lifecycle": true, "io-error": true, "io-error-reason": true, "watchdog": true, "control-error": true,
}

// ChangesState says whether the domain may be in another state after the event. Others, such as of a clock or a guest's agent,
// can come often.
func (e Event) ChangesState() bool { return stateEvents[e.Kind] }

const eventTime = "2006-01-02 15:04:05.000-0700"

// parseEvent reads a line of virsh event --timestamp. libvirt 9 writes
//
//	2026-12-03 08:50:32.715+0000: event 'lifecycle' for domain 'm1': Stopped Destroyed
//
// and older ones the same without quotes around the domain's name. The text is of virsh's own half, so that LC_ALL=C fixes it. It
// returns false for a line that is none.
func parseEvent(line string) (Event, bool) {
	before, rest, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "event '")
	if !ok {
		return Event{}, false
	}
	e := Event{}
	if stamp, ok := strings.CutSuffix(before, ": "); ok {
		// A time that cannot be read is left out: it is only told.
		e.Time, _ = time.Parse(eventTime, stamp)
	} else if before != "" {
		return Event{}, false
	}
	if e.Kind, rest, ok = strings.Cut(rest, "' for domain "); !ok || e.Kind == "" {
		return Event{}, false
	}
	if quoted, isQuoted := strings.CutPrefix(rest, "'"); isQuoted {
		if e.Domain, rest, ok = cutQuote(quoted); !ok {
			return Event{}, false
		}
	} else {
		var detailed bool
		if e.Domain, rest, detailed = strings.Cut(rest, ": "); !detailed {
			rest = ""
		}
	}
	e.Detail = strings.TrimSpace(rest)
	return e, e.Domain != ""
}

// cutQuote ends a name at the quote that the detail or the end of the line follows.
func cutQuote(text string) (name, detail string, ok bool) {
	if name, detail, ok = strings.Cut(text, "': "); ok {
		return name, detail, true
	}
	name, ok = strings.CutSuffix(text, "'")
	return name, "", ok
}
