// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func openEvents(t *testing.T, env []string, uri string) (*Events, *localProcess, error) {
	t.Helper()
	var remote *localProcess
	l := &local{env: env}
	start := func(ctx context.Context, command string) (Process, error) {
		p, err := l.start(ctx, command)
		if err == nil {
			remote, _ = p.(*localProcess)
		}
		return p, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	e, err := OpenEvents(ctx, start, ModeSystem, Options{URI: uri})
	if err == nil {
		t.Cleanup(e.Close)
	}
	return e, remote, err
}

var daemonEnv = []string{"PATH=/usr/sbin:/usr/bin:/bin", "HOME=/nonexistent"}

func TestAStreamTellsWhatHappensAndWhyItEnds(t *testing.T) {
	g := NewWithT(t)
	d := startDaemon(t)
	e, _, err := openEvents(t, daemonEnv, d.uri())
	g.Expect(err).NotTo(HaveOccurred())
	s := d.client(t)
	// What happens before the registration is not told.
	got := make(chan Event, 64)
	ended := make(chan error, 1)
	go func() {
		for {
			event, err := e.Next(t.Context())
			if err != nil {
				ended <- err
				return
			}
			got <- event
		}
	}()
	g.Eventually(func(g Gomega) {
		g.Expect(s.DestroyDomain(t.Context(), "test")).To(Succeed())
		g.Expect(s.StartDomain(t.Context(), "test")).To(Succeed())
		g.Expect(got).NotTo(BeEmpty())
	}, 10*time.Second, 200*time.Millisecond).Should(Succeed())
	event := <-got
	g.Expect(event.Domain).To(Equal("test"))
	g.Expect(event.Kind).To(Equal("lifecycle"))
	g.Expect(event.ChangesState()).To(BeTrue())
	g.Expect(time.Since(event.Time)).To(BeNumerically("<", time.Minute))

	d.signal(t, syscall.SIGKILL)
	var why error
	g.Eventually(ended, 10*time.Second).Should(Receive(&why))
	g.Expect(ReasonOf(why)).To(Equal(LibvirtUnavailable), "%v", why)
}

func TestAStreamEndsWithItsConnection(t *testing.T) {
	g := NewWithT(t)
	d := startDaemon(t)
	e, remote, err := openEvents(t, daemonEnv, d.uri())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(remote.stdin.Close()).To(Succeed())
	_, err = e.Next(t.Context())
	g.Expect(err).To(HaveOccurred())
	// The process is virsh itself: nothing is left when it has ended.
	g.Expect(remote.cmd.ProcessState).NotTo(BeNil())
	out, _ := exec.CommandContext(t.Context(), "pgrep", "-fa", d.dir+"/libvirt-sock").Output()
	g.Expect(strings.TrimSpace(string(out))).NotTo(ContainSubstring("event --loop"))
}

func TestAStreamThatCannotBeginSaysWhy(t *testing.T) {
	g := NewWithT(t)
	_, _, err := openEvents(t, daemonEnv, "qemu+unix:///system?socket=/nowhere/libvirt-sock")
	g.Expect(ReasonOf(err)).To(Equal(LibvirtUnavailable), "%v", err)
	bin := t.TempDir()
	g.Expect(os.Symlink("/bin/sh", bin+"/sh")).To(Succeed())
	_, _, err = openEvents(t, []string{"PATH=" + bin}, "")
	g.Expect(ReasonOf(err)).To(Equal(VirshMissing), "%v", err)
	lost := errors.New("no route")
	_, err = OpenEvents(t.Context(), func(context.Context, string) (Process, error) { return nil, lost }, ModeSystem, Options{})
	g.Expect(err).To(MatchError(lost))
}

func TestAContextEndsTheWaitForAnEvent(t *testing.T) {
	g := NewWithT(t)
	d := startDaemon(t)
	e, _, err := openEvents(t, daemonEnv, d.uri())
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = e.Next(ctx)
	g.Expect(err).To(MatchError(context.DeadlineExceeded))
}

func TestSessionModeHasOneDaemonAlsoForEvents(t *testing.T) {
	g := NewWithT(t)
	g.Expect(eventCommandFor(ModeSession, "")).To(And(ContainSubstring("XDG_RUNTIME_DIR=/run/user/$(id -u)"), ContainSubstring("qemu:///session")))
	g.Expect(eventCommandFor(ModeSystem, "")).To(And(Not(ContainSubstring("XDG_RUNTIME_DIR")), ContainSubstring("qemu:///system")))
}

func TestAPausedDomainIsResumed(t *testing.T) {
	g := NewWithT(t)
	s, _ := newLocal(t)
	g.Expect(s.ResumeDomain(t.Context(), "test")).To(Succeed(), "a domain that runs already")
	_, err := s.read(t.Context(), domainCmd("suspend", "", "test"))
	g.Expect(err).NotTo(HaveOccurred())
	obs, err := s.Observe(t.Context(), Query{Domain: "test"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(obs.Domain.State).To(Equal(StatePaused))
	g.Expect(obs.Domain.Transient).To(BeFalse())
	g.Expect(obs.Domain.DiskErrors).To(BeNil(), "only asked for after an error of a disk")
	g.Expect(s.ResumeDomain(t.Context(), "test")).To(Succeed())
	obs, err = s.Observe(t.Context(), Query{Domain: "test"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(obs.Domain.State).To(Equal(StateRunning))
	g.Expect(ReasonOf(s.ResumeDomain(t.Context(), "nope"))).To(Equal(DomainNotFound))
}

func TestADiskThatIsFullIsNamed(t *testing.T) {
	g := NewWithT(t)
	h := &fakeHost{answer: answers(map[string]reply{
		"list --all --name": {stdout: "m1\n"},
		"list --transient":  {stdout: "m1\n"},
		"dumpxml":           {stdout: "<domain/>\n"},
		"domstate":          {stdout: "paused (I/O error)\n"},
		"domblkerror":       {stdout: "vda: no space\n"},
	})}
	s := New(h.start, ModeSystem, Options{})
	t.Cleanup(func() { _ = s.Close() })
	obs, err := s.Observe(t.Context(), Query{Domain: "m1"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(obs.Domain).To(Equal(&DomainInfo{
		XML: "<domain/>\n", State: StatePaused, Reason: ReasonIOError, Transient: true, DiskErrors: map[string]string{"vda": NoSpaceOnDisk},
	}))
}
