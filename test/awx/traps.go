// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Traps are what goes wrong in an AWX at times.
type Traps struct {
	// EventLag is how long events and counts by host are stored later than they happen. A job's event_processing_finished is false until then.
	EventLag time.Duration
	// Shuffled has each second event stored before its predecessor, by half of EventLag.
	Shuffled bool
	// NoVariablesInLists leaves extra_vars out of the list of jobs.
	NoVariablesInLists bool
	// Faults come in the place of answers, each once, or Times times.
	Faults []Fault
	// Redirect sends all requests there.
	Redirect string
}

// Fault is one wrong answer.
type Fault struct {
	// Method and Path say for which requests: Path is a part of theirs.
	Method, Path string
	// Status is answered, with RetryAfter seconds if that is not 0. Status 0 breaks the connection off.
	Status     int
	RetryAfter int
	// Late has the request carried out before the wrong answer.
	Late bool
	// Delay passes before the answer.
	Delay time.Duration
	// Body is the answer's; AWX's own JSON when empty.
	Body string
	// Times is how often; 1 when 0.
	Times int
}

// fault takes the fault for a request off the list. s.mu is held.
func (s *Server) fault(r *http.Request) *Fault {
	for i := range s.traps.Faults {
		fault := &s.traps.Faults[i]
		if fault.Times < 0 || fault.Method != r.Method || !strings.Contains(r.URL.Path, fault.Path) {
			continue
		}
		taken := *fault
		if fault.Times--; fault.Times <= 0 {
			fault.Times = -1
		}
		return &taken
	}
	return nil
}

func (f *Fault) answer(w http.ResponseWriter) {
	if f.Status == 0 {
		panic(http.ErrAbortHandler)
	}
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	if f.Body != "" {
		w.WriteHeader(f.Status)
		_, _ = w.Write([]byte(f.Body))
		return
	}
	answer(w, f.Status, object{"detail": http.StatusText(f.Status)})
}
