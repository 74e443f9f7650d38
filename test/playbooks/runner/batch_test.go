// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/test/playbooks/fleet"
)

// together starts a sidecar that waits for runs to go together, and hosts.
func together(t *testing.T, count int) (*service, []*fleet.Server) {
	t.Helper()
	s := start(t, "--batch-window", "2s", "--max-runs", "2")
	f := servers(t)
	var hosts []*fleet.Server
	for i := range count {
		host, err := f.Start(fleet.Options{Name: fmt.Sprintf("h%d.ns", i)})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		hosts = append(hosts, host)
	}
	return s, hosts
}

// started is how many processes of ansible-playbook there were.
func (s *service) started() int {
	return strings.Count(s.log.String(), `"msg":"Starting ansible-playbook"`)
}

func TestRunsOfOneKindAreCarriedOutTogether(t *testing.T) {
	g := NewWithT(t)
	s, hosts := together(t, 3)
	hosts[2].Die()
	hosts[1].Host.Variables = map[string]any{"caplv_reason": "a variable of its own"}
	for i, host := range hosts {
		s.submit(request(fmt.Sprintf("r%d", i), ansible.OnboardHost, nil, host.Host))
	}
	for i, phase := range []ansible.Phase{ansible.Succeeded, ansible.Failed, ansible.Unreachable} {
		key, name := fmt.Sprintf("r%d", i), hosts[i].Host.Name
		status, events := s.ended(key)
		g.Expect(status.Phase).To(Equal(phase), "%+v", status)
		g.Expect(status.Hosts).To(HaveLen(1))
		g.Expect(status.Hosts).To(HaveKeyWithValue(name, gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{"Phase": Equal(phase)})))
		for _, event := range events {
			g.Expect(event.Host).To(BeElementOf("", name), "events of others are theirs")
		}
	}
	g.Expect(s.started()).To(Equal(1))
}

func TestARunThatOthersHaveSpoiltIsRepeatedAlone(t *testing.T) {
	g := NewWithT(t)
	s, hosts := together(t, 2)
	hosts[0].Host.Variables = map[string]any{"caplv_wrong": true}
	s.submit(request("wrong", ansible.HardenSession, nil, hosts[0].Host))
	s.submit(request("innocent", ansible.HardenSession, nil, hosts[1].Host))
	status, _ := s.ended("wrong")
	g.Expect(status.Phase).To(Equal(ansible.Failed))
	g.Expect(status.Hosts["h0.ns"].Message).To(Equal("caplv_wrong is true"))
	status, events := s.ended("innocent")
	g.Expect(status.Phase).To(Equal(ansible.Succeeded), "%+v", status)
	g.Expect(events).To(ContainElement(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{"Task": Equal("Something is done"), "Outcome": Equal("changed")})))
	g.Expect(s.started()).To(Equal(2))

	t.Run("but not when the other host is its own", func(t *testing.T) {
		g := NewWithT(t)
		s.submit(request("both", ansible.HardenSession, nil, hosts[0].Host, hosts[1].Host))
		status, _ := s.ended("both")
		g.Expect(status.Phase).To(Equal(ansible.Failed))
		g.Expect(status.Hosts["h1.ns"]).To(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{
			"Phase": Equal(ansible.Failed), "Message": Equal("The playbook was stopped, because it failed on another host"),
		}))
	})
}

func TestCancelingARunLeavesThoseItIsCarriedOutWith(t *testing.T) {
	g := NewWithT(t)
	s, hosts := together(t, 2)
	variables := map[string]any{"caplv_sleep": 15}
	for i, host := range hosts {
		s.submit(request(fmt.Sprintf("r%d", i), ansible.OnboardHost, variables, host.Host))
	}
	s.until("r0", sleeping)
	g.Expect(s.Cancel(t.Context(), ansible.Ref{Key: "r0"})).To(Succeed())
	g.Expect(s.status("r0")).To(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{"Phase": Equal(ansible.Running), "Message": HavePrefix("Canceled; ")}))
	for i, phase := range []ansible.Phase{ansible.Canceled, ansible.Succeeded} {
		status, _ := s.ended(fmt.Sprintf("r%d", i))
		g.Expect(status.Phase).To(Equal(phase))
	}

	t.Run("until all are canceled", func(t *testing.T) {
		g := NewWithT(t)
		for i, host := range hosts {
			s.submit(request(fmt.Sprintf("s%d", i), ansible.OnboardHost, slow, host.Host))
		}
		s.until("s0", sleeping)
		for _, key := range []string{"s0", "s1"} {
			g.Expect(s.Cancel(t.Context(), ansible.Ref{Key: key})).To(Succeed())
			status, _ := s.Status(t.Context(), ansible.Ref{Key: key})
			g.Expect(status.Key).To(Equal(key))
		}
		for _, key := range []string{"s0", "s1"} {
			status, _ := s.ended(key)
			g.Expect(status.Phase).To(Equal(ansible.Canceled))
		}
	})
}

func TestProgressOfATaskIsTold(t *testing.T) {
	g := NewWithT(t)
	s := start(t)
	s.submit(request("image", ansible.StageBaseImage, map[string]any{"caplv_pause": 3}, server(t, fleet.Options{Name: "one.ns"}).Host))
	s.until("image", func(status ansible.Status) bool { return status.Progress == "rhcos.qcow2: 34 %" })
	g.Expect(s.status("image").Task).To(Equal("It is shown"))
	_, events := s.ended("image")
	g.Expect(events).To(ContainElement(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{
		"Type": Equal(ansible.Progressed), "Task": Equal("It is shown"), "Host": Equal("one.ns"), "Message": Equal("rhcos.qcow2: 68 %"),
	})))
}

func TestAFullQueueRefuses(t *testing.T) {
	g := NewWithT(t)
	s := start(t, "--max-queue", "1")
	host := server(t, fleet.Options{Name: "one.ns"}).Host
	s.submit(request("running", ansible.OnboardHost, slow, host))
	s.until("running", func(status ansible.Status) bool { return status.Phase == ansible.Running })
	s.submit(request("waiting", ansible.OnboardHost, slow, host))
	_, err := s.Submit(t.Context(), request("refused", ansible.OnboardHost, slow, host))
	g.Expect(ansible.ReasonOf(err)).To(Equal(ansible.Overloaded))
}

func TestOldArtifactsGo(t *testing.T) {
	g := NewWithT(t)
	s := start(t, "--keep-runs", "2")
	host := server(t, fleet.Options{Name: "one.ns"}).Host
	for _, key := range []string{"a", "b", "c"} {
		asked := request(key, ansible.OnboardHost, nil, host)
		asked.Deadline = time.Nanosecond
		s.submit(asked)
		status, _ := s.ended(key)
		g.Expect(status.Phase).To(Equal(ansible.TimedOut))
	}
	_, err := s.Status(t.Context(), ansible.Ref{Key: "a"})
	g.Expect(ansible.ReasonOf(err)).To(Equal(ansible.UnknownRun))
	g.Expect(os.ReadDir(s.artifact("", ""))).To(HaveLen(2))
}

// The figures for many hosts are `make bench-runner`'s; that they are bounded is tested here.
func TestManyRunsAtOnceAreBounded(t *testing.T) {
	g := NewWithT(t)
	const count, maxRuns, forks, perRun = 50, 2, 5, 25
	s := start(t, "--batch-window", "1s", "--max-runs", fmt.Sprint(maxRuns), "--max-hosts-per-run", fmt.Sprint(perRun), "--forks", fmt.Sprint(forks))
	f := servers(t)
	stop := fleet.Watch(s.cmd.Process.Pid, s.workDir(), 100*time.Millisecond)
	began := time.Now()
	for i := range count {
		host, err := f.Start(fleet.Options{Name: fmt.Sprintf("h%d.ns", i)})
		g.Expect(err).NotTo(HaveOccurred())
		s.submit(request(fmt.Sprintf("r%d", i), ansible.OnboardHost, nil, host.Host))
	}
	for i := range count {
		status, _ := s.ended(fmt.Sprintf("r%d", i))
		g.Expect(status.Phase).To(Equal(ansible.Succeeded), "%+v", status)
	}
	usage := stop()
	t.Logf("%d hosts in %s: %+v, %d processes of ansible-playbook in all", count, time.Since(began).Round(time.Second), usage, s.started())
	g.Expect(usage.Playbooks).To(Equal(maxRuns))
	// Each has a fork and an ssh for every host that it works on, and a master of ssh for every host that it has worked on.
	g.Expect(usage.Processes).To(BeNumerically("<=", maxRuns*(1+3*forks+perRun)))
	g.Expect(usage.Memory).To(BeNumerically("<", 1<<30), "bytes")
	g.Expect(s.started()).To(BeNumerically("<=", 2+count/perRun), "the first one may begin with few hosts")
}
