// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"
)

// TestEveryTextOfARealHostHasItsReason reads texts that libvirt 9.0 on Debian 12 has said, word for word.
func TestEveryTextOfARealHostHasItsReason(t *testing.T) {
	content, err := os.ReadFile("testdata/errors.json")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var rows []struct {
		Name, Verb, Stderr string
		Want               Reason
	}
	NewWithT(t).Expect(json.Unmarshal(content, &rows)).To(Succeed())
	NewWithT(t).Expect(len(rows)).To(BeNumerically(">", 105))
	for _, row := range rows {
		t.Run(row.Name, func(t *testing.T) {
			g := NewWithT(t)
			e := classify(row.Verb, row.Stderr)
			g.Expect(e.Reason).To(Equal(row.Want))
			g.Expect(e.Message).NotTo(ContainSubstring("\n"))
			g.Expect(e.Message).NotTo(HavePrefix("error:"))
		})
	}
}

func TestParseState(t *testing.T) {
	for text, want := range map[string][2]string{
		"running (booted)\n\n":   {"running", "booted"},
		"paused (I/O error)":     {"paused", "I/O error"},
		"shut off (destroyed)":   {"shut off", "destroyed"},
		"in shutdown (unknown)":  {"in shutdown", "unknown"},
		"pmsuspended (disk)":     {"pmsuspended", "disk"},
		"crashed (panicked)":     {"crashed", "panicked"},
		"shut off":               {"shut off", ""},
		"paused (starting up)\n": {"paused", "starting up"},
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			state, reason := parseState(text)
			g.Expect([2]string{string(state), reason}).To(Equal(want))
		})
	}
	g := NewWithT(t)
	g.Expect(StatePaused.Active()).To(BeTrue())
	g.Expect(StatePaused.Running()).To(BeFalse())
	g.Expect(StateShutOff.Active()).To(BeFalse())
	g.Expect(StateIdle.Running()).To(BeTrue())
}

func TestParseSizeTakesTheLargerMemory(t *testing.T) {
	g := NewWithT(t)
	cpus, memory := parseSize("CPU model:           x86_64\nCPU(s):              8\nMemory size:         5976880 KiB\n",
		"total  :             24684208 KiB\nfree   : 1 KiB\n")
	g.Expect(cpus).To(Equal(uint(8)))
	g.Expect(memory).To(Equal(uint(24105)))
}

func FuzzClassify(f *testing.F) {
	f.Add("start", "error: Failed to start domain 'a'\nerror: x")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, verb, stderr string) {
		e := classify(verb, stderr)
		if e.Reason == "" {
			t.Fatal("no reason")
		}
		if len(e.Message) > maxMessage+16 || !utf8.ValidString(e.Message) || strings.Contains(e.Message, "\n") {
			t.Fatalf("%q became %q", stderr, e.Message)
		}
	})
}
