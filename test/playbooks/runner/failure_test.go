// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/runner/process"
	"github.com/caplv/caplv/test/playbooks/fleet"
)

// slow are the variables of a run that lasts until it is ended.
var slow = map[string]any{"caplv_sleep": 600}

func sleeping(status ansible.Status) bool { return status.Task == "It takes a while" }

func TestARunThatFailsSaysWhereAndWhy(t *testing.T) {
	s := start(t)
	f := servers(t)
	up, err := f.Start(fleet.Options{Name: "up.ns"})
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	gone, err := f.Start(fleet.Options{Name: "gone.ns"})
	g.Expect(err).NotTo(HaveOccurred())
	gone.Die()
	otherKey, otherHostKey, err := fleet.NewKey()
	g.Expect(err).NotTo(HaveOccurred())
	with := func(host ansible.Host, change func(*ansible.Host)) ansible.Host {
		change(&host)
		return host
	}
	for _, tt := range []struct {
		name     string
		playbook ansible.Playbook
		vars     map[string]any
		host     ansible.Host
		phase    ansible.Phase
		task     string
		message  string
	}{
		{"when the host is unreachable", ansible.OnboardHost, nil, gone.Host, ansible.Unreachable, "Something is done", "Connection refused"},
		{"when the host has another key", ansible.OnboardHost, nil, with(up.Host, func(h *ansible.Host) { h.HostKeys = []string{otherHostKey} }),
			ansible.Unreachable, "Something is done", "Host key verification failed"},
		{"when our key is the wrong one", ansible.OnboardHost, nil, with(up.Host, func(h *ansible.Host) { h.PrivateKey = otherKey }),
			ansible.Unreachable, "Something is done", "Permission denied"},
		{"when a task fails", ansible.OnboardHost, map[string]any{"caplv_reason": "no space"}, up.Host, ansible.Failed, "A failure that is meant",
			"It failed as it was told to: no space"},
		{"when a task fails with a mebibyte of output", ansible.VerifyHost, map[string]any{"caplv_exit": 3}, up.Host, ansible.Failed, "A mebibyte is printed",
			"non-zero return code: yyyy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			key := strings.ReplaceAll(strings.TrimPrefix(tt.name, "when "), " ", "-")
			s.submit(request(key, tt.playbook, tt.vars, tt.host))
			status, events := s.ended(key)
			g.Expect(status.Phase).To(Equal(tt.phase), "%+v", status)
			g.Expect(status.Hosts).To(HaveKeyWithValue(tt.host.Name, gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{
				"Phase": Equal(tt.phase), "FailedTask": Equal(tt.task), "Message": And(ContainSubstring(tt.message), WithTransform(length, BeNumerically("<=", 1024))),
			})))
			g.Expect(events).To(ContainElement(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{"Type": Equal(ansible.HostResulted), "Message": ContainSubstring(tt.message)})))
		})
	}

	t.Run("and a mebibyte of output is none", func(t *testing.T) {
		s.submit(request("mebibyte", ansible.VerifyHost, nil, up.Host))
		status, _ := s.ended("mebibyte")
		NewWithT(t).Expect(status.Phase).To(Equal(ansible.Succeeded), "%+v", status)
	})
}

func length(text string) int { return len(text) }

func TestAPlaybookThatCannotBeReadIsAFailure(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	g.Expect(os.WriteFile(dir+"/onboard_host.yml", []byte("- hosts: all\n  no_such_keyword: true\n"), 0o600)).To(Succeed())
	s := start(t, "--playbooks", dir)
	s.submit(request("broken", ansible.OnboardHost, nil, server(t, fleet.Options{Name: "one.ns"}).Host))
	status, _ := s.ended("broken")
	g.Expect(status.Phase).To(Equal(ansible.Failed))
	g.Expect(status.Message).To(ContainSubstring("no_such_keyword"))
}

func TestARunIsEndedAtItsDeadline(t *testing.T) {
	g := NewWithT(t)
	s := start(t)
	asked := request("slow", ansible.OnboardHost, slow, server(t, fleet.Options{Name: "one.ns"}).Host)
	asked.Deadline = 10 * time.Second
	s.submit(asked)
	status, _ := s.ended("slow")
	g.Expect(status.Phase).To(Equal(ansible.TimedOut), "%+v", status)
	g.Expect(status.Hosts["one.ns"].FailedTask).To(Equal("It takes a while"))
	g.Expect(status.Finished.Sub(status.Started)).To(BeNumerically("<", 30*time.Second))
	g.Expect(process.Find(s.workDir())).To(ConsistOf(s.cmd.Process.Pid), "only the sidecar has the directory in its command line")
	g.Expect(os.ReadDir(s.workDir())).To(BeEmpty())
}

func TestAHostThatDiesInTheMiddleIsUnreachable(t *testing.T) {
	g := NewWithT(t)
	s := start(t)
	host := server(t, fleet.Options{Name: "one.ns"})
	s.submit(request("dying", ansible.OnboardHost, slow, host.Host))
	s.until("dying", sleeping)
	time.Sleep(time.Second) // The command has begun on the host.
	host.Die()
	status, _ := s.ended("dying")
	g.Expect(status.Phase).To(Equal(ansible.Unreachable), "%+v", status)
	g.Expect(status.Hosts["one.ns"].FailedTask).To(Equal("It takes a while"))
}

func TestCancel(t *testing.T) {
	s := start(t, "--max-runs", "1")
	host := server(t, fleet.Options{Name: "one.ns"}).Host
	s.submit(request("running", ansible.OnboardHost, slow, host))
	s.until("running", sleeping)
	s.submit(request("queued", ansible.OnboardHost, nil, host))

	t.Run("ends a run that waits", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(s.status("queued")).To(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{"Phase": Equal(ansible.Queued), "Message": ContainSubstring("another run on the host")}))
		g.Expect(s.Cancel(t.Context(), ansible.Ref{Key: "queued"})).To(Succeed())
		g.Expect(s.status("queued").Phase).To(Equal(ansible.Canceled))
	})
	t.Run("ends a run with its processes", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(s.Cancel(t.Context(), ansible.Ref{Key: "running"})).To(Succeed())
		status, _ := s.ended("running")
		g.Expect(status.Phase).To(Equal(ansible.Canceled))
		g.Expect(process.Find(s.workDir())).To(ConsistOf(s.cmd.Process.Pid))
	})
	t.Run("leaves a run that has ended alone", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(s.Cancel(t.Context(), ansible.Ref{Key: "running"})).To(Succeed())
		g.Expect(ansible.ReasonOf(s.Cancel(t.Context(), ansible.Ref{Key: "never"}))).To(Equal(ansible.UnknownRun))
	})
	t.Run("gives the host and the slot back", func(t *testing.T) {
		s.submit(request("next", ansible.OnboardHost, nil, host))
		status, _ := s.ended("next")
		NewWithT(t).Expect(status.Phase).To(Equal(ansible.Succeeded), "%+v", status)
	})
}

func TestASidecarThatIsKilledHasLostItsRuns(t *testing.T) {
	g := NewWithT(t)
	s := start(t, "--max-runs", "1")
	host := server(t, fleet.Options{Name: "one.ns"}).Host
	s.submit(request("done", ansible.OnboardHost, nil, host))
	s.ended("done")
	s.submit(request("running", ansible.OnboardHost, slow, host))
	s.until("running", sleeping)
	s.submit(request("queued", ansible.OnboardHost, nil, host))

	s.kill(syscall.SIGKILL)
	left := process.Find(s.workDir())
	g.Expect(left).NotTo(BeEmpty(), "ansible-playbook is an orphan now")
	_, err := s.Status(t.Context(), ansible.Ref{Key: "running"})
	g.Expect(ansible.ReasonOf(err)).To(Equal(ansible.Unavailable))
	_, err = s.Submit(t.Context(), request("another", ansible.OnboardHost, nil, host))
	g.Expect(ansible.ReasonOf(err)).To(Equal(ansible.Unavailable))

	s.start()
	g.Expect(process.Find(s.workDir())).To(ConsistOf(s.cmd.Process.Pid))
	g.Expect(os.ReadDir(s.workDir())).To(BeEmpty())
	g.Expect(s.status("done").Phase).To(Equal(ansible.Succeeded))
	for _, key := range []string{"running", "queued"} {
		status, events := s.ended(key)
		g.Expect(status.Phase).To(Equal(ansible.Lost))
		g.Expect(status.Hosts["one.ns"].Phase).To(Equal(ansible.Lost))
		g.Expect(events[len(events)-1]).To(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{"Type": Equal(ansible.RunEnded), "Outcome": Equal("Lost")}))
	}
	s.submit(request("again", ansible.OnboardHost, nil, host))
	status, _ := s.ended("again")
	g.Expect(status.Phase).To(Equal(ansible.Succeeded), "%+v", status)
}

func TestAnsiblePlaybookThatIsKilledHasLostItsRun(t *testing.T) {
	g := NewWithT(t)
	s := start(t)
	s.submit(request("killed", ansible.OnboardHost, slow, server(t, fleet.Options{Name: "one.ns"}).Host))
	s.until("killed", sleeping)
	for _, pid := range process.Find("CAPLV_RUN_DIR=" + s.workDir()) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	status, _ := s.ended("killed")
	g.Expect(status.Phase).To(Equal(ansible.Lost), "%+v", status)
}

func TestAnOrderlyEndCancelsRuns(t *testing.T) {
	g := NewWithT(t)
	s := start(t)
	s.submit(request("running", ansible.OnboardHost, slow, server(t, fleet.Options{Name: "one.ns"}).Host))
	s.until("running", sleeping)
	s.kill(syscall.SIGTERM)
	g.Expect(s.cmd.ProcessState.ExitCode()).To(Equal(0))
	g.Expect(process.Find(s.workDir())).To(BeEmpty())
	g.Expect(os.ReadDir(s.workDir())).To(BeEmpty())
	s.start()
	g.Expect(s.status("running").Phase).To(Equal(ansible.Canceled))
}
