// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestLinesOfEventsAreRead(t *testing.T) {
	at := time.Date(2026, 12, 3, 8, 50, 32, 715e6, time.UTC)
	for _, row := range []struct {
		name, line string
		want       Event
		changes    bool
	}{
		{"libvirt 9", "2026-12-03 08:50:32.715+0000: event 'lifecycle' for domain 'm1': Stopped Destroyed",
			Event{at, "lifecycle", "m1", "Stopped Destroyed"}, true},
		{"a detail of several words", "2026-12-03 08:50:32.715+0000: event 'lifecycle' for domain 'm1': Shutdown Finished after host request",
			Event{at, "lifecycle", "m1", "Shutdown Finished after host request"}, true},
		{"no detail", "2026-12-03 08:50:32.715+0000: event 'control-error' for domain 'm1'", Event{at, "control-error", "m1", ""}, true},
		{"a storage that is full", "2026-12-03 08:50:32.715+0000: event 'io-error-reason' for domain 'm1': /run/caplv/m1/m1.qcow2 (virtio-disk0) pause due to enospc",
			Event{at, "io-error-reason", "m1", "/run/caplv/m1/m1.qcow2 (virtio-disk0) pause due to enospc"}, true},
		{"an older libvirt, without quotes", "2026-12-03 08:50:32.715+0000: event 'lifecycle' for domain m1: Suspended I/O Error",
			Event{at, "lifecycle", "m1", "Suspended I/O Error"}, true},
		{"the same without detail", "2026-12-03 08:50:32.715+0000: event 'reboot' for domain m1", Event{at, "reboot", "m1", ""}, false},
		{"no time", "event 'lifecycle' for domain 'm1': Started Booted", Event{time.Time{}, "lifecycle", "m1", "Started Booted"}, true},
		{"a time that is none", "tomorrow: event 'lifecycle' for domain 'm1': Started Booted", Event{time.Time{}, "lifecycle", "m1", "Started Booted"}, true},
		{"a name with blanks and a quote", "event 'lifecycle' for domain 'it's mine': Started Booted", Event{time.Time{}, "lifecycle", "it's mine", "Started Booted"}, true},
		{"a clock", "event 'rtc-change' for domain 'm1': 3600", Event{time.Time{}, "rtc-change", "m1", "3600"}, false},
		{"a guest's agent", "event 'agent-lifecycle' for domain 'm1': state: 'connected' reason: 'channel event'",
			Event{time.Time{}, "agent-lifecycle", "m1", "state: 'connected' reason: 'channel event'"}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			got, ok := parseEvent(row.line)
			g.Expect(ok).To(BeTrue())
			g.Expect(got.Time.Equal(row.want.Time)).To(BeTrue(), "%v", got.Time)
			got.Time = row.want.Time
			g.Expect(got).To(Equal(row.want))
			g.Expect(got.ChangesState()).To(Equal(row.changes))
		})
	}
}

func TestOtherLinesAreNoEvents(t *testing.T) {
	for _, line := range []string{
		"", "qemu:///system", "events received: 6", "error: Disconnected from qemu:///system due to end of file",
		"event loop timed out", "event '' for domain 'm1'", "event 'lifecycle' for domain ''", "event 'lifecycle' for domain 'm1",
		"event 'lifecycle'", "x event 'lifecycle' for domain 'm1'",
	} {
		t.Run(line, func(t *testing.T) {
			e, ok := parseEvent(line)
			NewWithT(t).Expect(ok).To(BeFalse(), "%v", e)
		})
	}
}

func TestErrorsOfDisksAreRead(t *testing.T) {
	g := NewWithT(t)
	g.Expect(parseDiskErrors("vda: no space\nvdb: unspecified error\n\n")).To(Equal(map[string]string{"vda": NoSpaceOnDisk, "vdb": "unspecified error"}))
	g.Expect(parseDiskErrors("No errors found\n")).To(BeEmpty())
}

// FuzzEvents gives the parser whatever a host could print.
func FuzzEvents(f *testing.F) {
	f.Add("2026-12-03 08:50:32.715+0000: event 'lifecycle' for domain 'm1': Stopped Destroyed")
	f.Add("event 'lifecycle' for domain m1: Started Booted")
	f.Add("event 'io-error-reason' for domain 'm1': /a (b) pause due to enospc\r\n")
	f.Add("event '' for domain ''': ")
	f.Add("vda: no space")
	f.Fuzz(func(t *testing.T, line string) {
		for disk, words := range parseDiskErrors(line) {
			if !strings.Contains(line, disk) || !strings.Contains(line, words) {
				t.Fatalf("%q became %q: %q", line, disk, words)
			}
		}
		e, ok := parseEvent(line)
		if !ok {
			return
		}
		if e.Kind == "" || e.Domain == "" || len(e.Kind)+len(e.Domain)+len(e.Detail) > len(line) {
			t.Fatalf("%q became %+v", line, e)
		}
		if again, ok := parseEvent("event '" + e.Kind + "' for domain '" + e.Domain + "': " + e.Detail); ok && again.Kind != e.Kind {
			t.Fatalf("%+v became %+v", e, again)
		}
	})
}
