// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// aMachine is a host on which domain "m1" runs.
func aMachine() map[string]reply {
	return map[string]reply{
		"list --all --name":       {stdout: "m1\nother\n\n"},
		"list --name":             {stdout: "m1\n\n"},
		`dumpxml --inactive "m1"`: {stdout: "<domain>\n  <name>m1</name>\n</domain>\n"},
		`domstate --reason "m1"`:  {stdout: "running (booted)\n"},
	}
}

func TestOutputsAreToldApart(t *testing.T) {
	for name, host := range map[string]*fakeHost{
		"when virsh echoes its input":                     {},
		"when virsh only prompts":                         {plain: true},
		"when virsh neither prompts nor echoes":           {quiet: true},
		"when the output comes byte by byte":              {bytewise: true},
		"when the login greets":                           {login: reply{stdout: "Welcome to h1\nLast login: never\n"}},
		"when the login's shell lacks a locale":           {login: reply{stderr: "bash: warning: setlocale: LC_ALL: cannot change locale (de_DE.UTF-8)\n"}},
		"when the login's output does not end in a break": {login: reply{stdout: "hello", stderr: "hello"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host.answer = answers(aMachine())
			s := New(host.start, ModeSystem, Options{})
			for range 2 {
				obs, err := s.Observe(t.Context(), Query{Domain: "m1", Pools: []string{"p"}})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(obs.Domain).To(Equal(&DomainInfo{XML: "<domain>\n  <name>m1</name>\n</domain>\n", State: StateRunning, Reason: "booted"}))
				g.Expect(obs.Pools).To(BeEmpty())
			}
			starts, _ := host.count()
			g.Expect(starts).To(Equal(1))
		})
	}
}

func TestAMessageOfTheLibrarysLogIsNoError(t *testing.T) {
	g := NewWithT(t)
	host := &fakeHost{answer: answers(map[string]reply{
		"start": {stderr: "2026-12-01 14:47:05.502+0000: 10397: warning : virNetClientIOWriteMessage:1 : slow\n"},
	})}
	s := New(host.start, ModeSystem, Options{})
	g.Expect(s.StartDomain(t.Context(), "m1")).To(Succeed())
	g.Expect(host.given()).To(Equal([]string{`start "m1"`}), "a change that succeeded is not looked after")
}

func TestALostDaemonIsNotBelieved(t *testing.T) {
	const lost = "error: Disconnected from qemu:///system due to end of file\n"
	for _, row := range []struct{ name, stderr string }{
		{"the connection breaks", lost},
		{"the connection broke and is back", "error: Reconnected to the hypervisor\n"},
		{"virsh cannot connect again", "error: Failed to reconnect to the hypervisor\nerror: Failed to connect socket to '/x/y': Connection refused\n"},
		{"the break comes before the text that says that nothing is there", lost + "error: failed to get domain 'm1'\n"},
		{"a call is cut off", "error: Failed to list domains\nerror: Cannot recv data: Connection reset by peer\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			var broken atomic.Bool
			broken.Store(true)
			host := &fakeHost{}
			host.answer = func(line string) reply {
				if broken.Load() && strings.HasPrefix(line, "list ") {
					return reply{stderr: row.stderr}
				}
				return answers(aMachine())(line)
			}
			s := New(host.start, ModeSystem, Options{})
			_, err := s.Observe(t.Context(), Query{Domain: "m1"})
			g.Expect(ReasonOf(err)).To(Equal(LibvirtUnavailable), "%v", err)
			starts, ended := host.count()
			g.Expect([2]int{starts, ended}).To(Equal([2]int{1, 1}), "the process is dropped")

			broken.Store(false)
			obs, err := s.Observe(t.Context(), Query{Domain: "m1"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(obs.Domain).NotTo(BeNil())

			broken.Store(true)
			_, err = s.Observe(t.Context(), Query{Domain: "m1"})
			g.Expect(ReasonOf(err)).To(Equal(LibvirtUnavailable))
			starts, ended = host.count()
			g.Expect([2]int{starts, ended}).To(Equal([2]int{3, 3}), "reading is tried once more, with a new process")
		})
	}
}

func TestAChangeIsNeverRepeated(t *testing.T) {
	g := NewWithT(t)
	table := aMachine()
	table["start"] = reply{end: "exit"}
	host := &fakeHost{answer: answers(table), exit: 137}
	s := New(host.start, ModeSystem, Options{})
	_, err := s.Observe(t.Context(), Query{Domain: "m1"})
	g.Expect(err).NotTo(HaveOccurred())
	err = s.StartDomain(t.Context(), "m2")
	g.Expect(ReasonOf(err)).To(Equal(LibvirtUnavailable))
	g.Expect(err).To(MatchError(ContainSubstring("status 137")))
	starts := 0
	for _, line := range host.given() {
		if strings.HasPrefix(line, "start ") {
			starts++
		}
	}
	g.Expect(starts).To(Equal(1))
}

func TestHowAProcessEndsBecomesTheError(t *testing.T) {
	for _, row := range []struct {
		name    string
		login   reply
		exit    int
		want    Reason
		message string
	}{
		{"virsh is missing", reply{stderr: missingMarker + "\n", end: "exit"}, 127, VirshMissing, "virsh is missing"},
		{"the shell is missing", reply{stderr: "bash: line 1: exec: sh: not found\n", end: "exit"}, 127, Unknown, "exec: sh: not found"},
		{"there is no place for files", reply{stderr: setupMarker + "no place for temporary files\n", end: "exit"}, 1, Unknown, "no place for temporary files"},
		{"the daemon is down", reply{end: "exit", stderr: "error: failed to connect to the hypervisor\n" +
			"error: Failed to connect socket to '/var/run/libvirt/libvirt-sock': No such file or directory\n"}, 1, LibvirtUnavailable, "No such file or directory"},
		{"the daemon is down and virsh stays", reply{stderr: "error: failed to connect to the hypervisor\n"}, 0, LibvirtUnavailable, "failed to connect"},
		{"the account has no shell", reply{stdout: "This account is not available.\n", end: "exit"}, 1, Unknown, "This account is not available."},
		{"nothing is said", reply{end: "exit"}, 255, LibvirtUnavailable, "status 255"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			host := &fakeHost{login: row.login, exit: row.exit, answer: answers(nil)}
			_, err := New(host.start, ModeSystem, Options{}).Observe(t.Context(), Query{Domain: "m1"})
			g.Expect(ReasonOf(err)).To(Equal(row.want), "%v", err)
			g.Expect(err).To(MatchError(ContainSubstring(row.message)))
			starts, ended := host.count()
			g.Expect(ended).To(Equal(starts))
		})
	}
}

func TestAnErrorOfTheTransportIsKept(t *testing.T) {
	g := NewWithT(t)
	broken := errors.New("broken")
	s := New(func(context.Context, string) (Process, error) { return nil, broken }, ModeSystem, Options{})
	g.Expect(s.StartDomain(t.Context(), "m1")).To(MatchError(broken))
}

func TestTooMuchOutputEndsTheProcess(t *testing.T) {
	g := NewWithT(t)
	host := &fakeHost{answer: answers(map[string]reply{"list --all": {stdout: strings.Repeat("x", maxOutput+chunkSize), end: "hang"}})}
	_, err := New(host.start, ModeSystem, Options{}).Observe(t.Context(), Query{Domain: "m1"})
	g.Expect(err).To(MatchError(ContainSubstring("more than 16 MiB")))
	starts, ended := host.count()
	g.Expect(ended).To(Equal(starts))
}

func TestAContextEndsAChangeAndItsProcess(t *testing.T) {
	for name, r := range map[string]reply{
		"a daemon that does not answer": {end: "hang"},
		"an output without an end":      {stdout: "half of a li", end: "hang"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := &fakeHost{answer: answers(map[string]reply{"start": r})}
			s := New(host.start, ModeSystem, Options{})
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			g.Expect(s.StartDomain(ctx, "m1")).To(MatchError(context.DeadlineExceeded))
			g.Expect(s.DestroyDomain(t.Context(), "m1")).To(Succeed(), "the next operation has a process of its own")
			starts, ended := host.count()
			g.Expect([2]int{starts, ended}).To(Equal([2]int{2, 1}))
		})
	}
}

func TestAHostThatDoesNotReadHoldsNobody(t *testing.T) {
	g := NewWithT(t)
	host := &fakeHost{login: reply{end: "hang"}} // It never comes to reading.
	s := New(host.start, ModeSystem, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	g.Expect(s.DefineDomain(ctx, domainXML)).To(MatchError(context.DeadlineExceeded))
}

func TestOperationsDoNotMix(t *testing.T) {
	g := NewWithT(t)
	host := &fakeHost{answer: answers(aMachine())}
	s := New(host.start, ModeSystem, Options{})
	var wait sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		wait.Go(func() {
			obs, err := s.Observe(t.Context(), Query{Domain: "m1"})
			if err == nil && (obs.Domain == nil || obs.Domain.State != StateRunning) {
				err = errors.New("the domain of another operation")
			}
			errs[i] = err
		})
	}
	wait.Wait()
	g.Expect(errors.Join(errs...)).NotTo(HaveOccurred())
	starts, _ := host.count()
	g.Expect(starts).To(Equal(1))
}

func TestAnOperationWaitsForAnotherAsLongAsItsContextDoes(t *testing.T) {
	g := NewWithT(t)
	host := &fakeHost{answer: answers(map[string]reply{"start": {end: "hang"}})}
	s := New(host.start, ModeSystem, Options{})
	long, endLong := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.StartDomain(long, "m1") }()
	g.Eventually(host.given).Should(ContainElement(`start "m1"`))
	short, endShort := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer endShort()
	g.Expect(s.StartDomain(short, "m2")).To(MatchError(ContainSubstring("waiting for another operation")))
	endLong()
	g.Expect(<-ended).To(MatchError(context.Canceled))
	g.Expect(host.given()).NotTo(ContainElement(`start "m2"`))
}

func TestCloseAlsoEndsAProcessThatIsAtWork(t *testing.T) {
	g := NewWithT(t)
	proceed := make(chan struct{})
	host := &fakeHost{answer: func(string) reply { <-proceed; return reply{} }}
	s := New(host.start, ModeSystem, Options{IdleTimeout: time.Hour})
	ended := make(chan error)
	go func() { ended <- s.StartDomain(t.Context(), "m1") }()
	g.Eventually(host.given).Should(ContainElement(`start "m1"`))
	g.Expect(s.Close()).To(Succeed())
	close(proceed)
	g.Expect(<-ended).To(Succeed(), "the operation comes to its end first")
	_, closed := host.count()
	g.Expect(closed).To(Equal(1))
}

// FuzzOutputs reads whatever a host could write. It may be no sense, but must not be a name that was not listed, or end badly.
func FuzzOutputs(f *testing.F) {
	f.Add("virsh # list\nm1\nvirsh # ", "m1", true)
	f.Add(" a b   /pool/a b\n", "a b", false)
	f.Add("CPU(s): 8\nMemory size: 1 KiB\ntotal : 2 KiB", "", false)
	f.Add("running (booted)", "(", true)
	f.Fuzz(func(t *testing.T, text, name string, echoes bool) {
		kept := withoutPrompts(text, echoes)
		if len(kept) > len(text) {
			t.Fatal("prompts were added")
		}
		if (lists(kept, name) || listsVolume(kept, name)) && (name == "" || !strings.Contains(kept, name)) {
			t.Fatalf("%q is said to be listed in %q", name, kept)
		}
		parseSize(kept, kept)
		state, reason := parseState(kept)
		if !strings.Contains(kept, string(state)) || !strings.Contains(kept, reason) {
			t.Fatalf("state %q (%q) was read from %q", state, reason, kept)
		}
	})
}
