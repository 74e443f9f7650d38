// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx_test

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/ansible"
	fake "github.com/caplv/caplv/test/awx"
)

func TestARunOverSSHVerifiesTheHostsKey(t *testing.T) {
	g := NewWithT(t)
	server := startSSHD(t)
	me, err := user.Current()
	g.Expect(err).NotTo(HaveOccurred())
	dir := t.TempDir()
	inventory := filepath.Join(dir, "hosts")
	write(t, inventory, fmt.Sprintf("one.site ansible_host=127.0.0.1 ansible_port=%[1]d ansible_user=%[2]s\ntwo.site ansible_host=localhost ansible_port=%[1]d ansible_user=%[2]s\n"+
		"[all:vars]\nansible_python_interpreter=%[3]s\n", server.port, me.Username, python(t)))
	mark := filepath.Join(dir, "mark")
	write(t, filepath.Join(dir, "playbooks", "onboard_host.yml"), `
- name: Small
  hosts: all
  gather_facts: false
  tasks:
    - name: A file is there
      ansible.builtin.copy:
        content: "{{ text }}"
        dest: "{{ mark }}.{{ inventory_hostname }}"
        mode: "0600"
`)
	backend := connect(t, fake.Start(t, inventory, server.privateKey, fake.WithProject(dir)))
	ours := func(r *ansible.Request) {
		r.Hosts[0].Port, r.Hosts[0].HostKeys = server.port, []string{server.hostKey}
		r.Variables = map[string]any{"mark": mark, "text": "{{ lookup('pipe', 'id') }}"}
	}

	ref, err := backend.Submit(t.Context(), request("right-key", ours))
	g.Expect(err).NotTo(HaveOccurred())
	status := finished(t, backend, ref)
	g.Expect(status.Phase).To(Equal(ansible.Succeeded), "%+v", status)
	g.Expect(status.Hosts).To(HaveLen(1))
	g.Expect(status.Hosts["one.site"].ChangedTasks).To(Equal([]string{"A file is there"}))
	content, err := os.ReadFile(mark + ".one.site")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(content)).To(Equal("{{ lookup('pipe', 'id') }}"))

	ref, err = backend.Submit(t.Context(), request("two-hosts", ours, func(r *ansible.Request) {
		r.Hosts = append(r.Hosts, ansible.Host{Name: "two.site", Address: "localhost", Port: server.port, HostKeys: []string{server.hostKey}})
	}))
	g.Expect(err).NotTo(HaveOccurred())
	status = finished(t, backend, ref)
	g.Expect(status.Phase).To(Equal(ansible.Succeeded), "%+v", status)
	g.Expect(mark + ".two.site").To(BeAnExistingFile())

	ref, err = backend.Submit(t.Context(), request("wrong-key", ours, func(r *ansible.Request) { r.Hosts[0].HostKeys = []string{hostKey} }))
	g.Expect(err).NotTo(HaveOccurred())
	status = finished(t, backend, ref)
	g.Expect(status.Phase).To(Equal(ansible.Unreachable), "%+v", status)
	g.Expect(status.Hosts["one.site"].FailedTask).To(Equal("A file is there"))
	g.Expect(status.Hosts["one.site"].Message).To(ContainSubstring("Host key verification failed"))
}

func TestARunTellsHowItGoesAndWhatBecameOfIt(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	server.Set(func(traps *fake.Traps) { traps.EventLag, traps.Shuffled = 600*time.Millisecond, true })
	backend := connect(t, server)
	ref, err := backend.Submit(t.Context(), request("run-1", with("fail", "no disk\nat all, password=hunter2"), with("failing", "two.site"), with("say", "hello"),
		func(r *ansible.Request) {
			r.Hosts = append(r.Hosts, ansible.Host{Name: "two.site", Address: "127.0.0.2", Port: 22, HostKeys: []string{hostKey}})
			r.SkipTags = []string{"optional"}
		}))
	g.Expect(err).NotTo(HaveOccurred())

	var told []ansible.Event
	g.Expect(backend.Follow(t.Context(), ref, 0, func(e ansible.Event) { told = append(told, e) })).To(Succeed())
	var sequence int64
	var tasks []string
	for _, e := range told {
		g.Expect(e.Sequence).To(BeNumerically(">", sequence))
		sequence = e.Sequence
		if e.Type == ansible.TaskStarted {
			tasks = append(tasks, e.Task)
		}
	}
	g.Expect(tasks).To(Equal([]string{"It says what it was given", "It prints", "It may fail without harm", "It takes its time", "It fails"}))
	last := told[len(told)-1]
	g.Expect(last.Type).To(Equal(ansible.RunEnded))
	g.Expect(last.Outcome).To(Equal("Failed"))
	g.Expect(last.TasksDone).To(Equal(5))

	var again []ansible.Event
	g.Expect(backend.Follow(t.Context(), ref, told[4].Sequence, func(e ansible.Event) { again = append(again, e) })).To(Succeed())
	g.Expect(again).To(Equal(told[5:]))
	g.Expect(backend.Follow(t.Context(), ref, last.Sequence, func(e ansible.Event) { t.Errorf("%+v", e) })).To(Succeed())

	status := finished(t, backend, ref)
	g.Expect(status.Phase).To(Equal(ansible.Failed))
	g.Expect(status.Playbook).To(Equal(ansible.OnboardHost))
	g.Expect(status.TasksDone).To(Equal(5))
	g.Expect(status.Started).NotTo(BeZero())
	g.Expect(status.Finished).NotTo(BeZero())
	g.Expect(status.RolesVersion).NotTo(BeEmpty())
	one, two := status.Hosts["one.site"], status.Hosts["two.site"]
	g.Expect(one.Phase).To(Equal(ansible.Succeeded))
	g.Expect(one.FailedTask).To(BeEmpty())
	g.Expect(one.ChangedTasks).To(Equal([]string{"It says what it was given"}))
	g.Expect(two.Phase).To(Equal(ansible.Failed))
	g.Expect(two.FailedTask).To(Equal("It fails"))
	g.Expect(two.Message).To(Equal("no disk at all, password=[hidden]"))
	g.Expect(two.Failed).To(Equal(1))
}

func TestACheckChangesNothing(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	backend := connect(t, server)
	ref, err := backend.Submit(t.Context(), request("check-1", func(r *ansible.Request) { r.Check = true }))
	g.Expect(err).NotTo(HaveOccurred())
	status := finished(t, backend, ref)
	g.Expect(status.Phase).To(Equal(ansible.Succeeded))
	g.Expect(status.Check).To(BeTrue())
	g.Expect(status.Hosts["one.site"].ChangedTasks).To(Equal([]string{"It says what it was given"}))
	g.Expect(server.Jobs()[0]["job_type"]).To(Equal("check"))
}

func TestAResultOfAMebibyteDoesNoHarm(t *testing.T) {
	g := NewWithT(t)
	backend := connect(t, start(t))
	ref, err := backend.Submit(t.Context(), request("big", with("big", 1<<20)))
	g.Expect(err).NotTo(HaveOccurred())
	count := 0
	g.Expect(backend.Follow(t.Context(), ref, 0, func(e ansible.Event) {
		count++
		if len(e.Message) > 1024 {
			t.Errorf("a message of %d bytes", len(e.Message))
		}
	})).To(Succeed())
	g.Expect(count).To(BeNumerically(">", 8))
	g.Expect(finished(t, backend, ref).Phase).To(Equal(ansible.Succeeded))
}

func TestCancelEndsARun(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	backend := connect(t, server)
	ref, err := backend.Submit(t.Context(), request("cancel-1", with("seconds", 300)))
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func(g Gomega) {
		status, err := backend.Status(t.Context(), ref)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status.Task).To(Equal("It takes its time"))
		g.Expect(status.Phase).To(Equal(ansible.Running))
		g.Expect(status.TasksDone).To(Equal(4))
	}).WithTimeout(60 * time.Second).Should(Succeed())
	g.Expect(backend.Cancel(t.Context(), ref)).To(Succeed())
	status := finished(t, backend, ref)
	g.Expect(status.Phase).To(Equal(ansible.Canceled))
	g.Expect(status.Hosts["one.site"].Phase).To(Equal(ansible.Canceled))
	// It has ended: AWX answers 405, which is what was wanted.
	g.Expect(backend.Cancel(t.Context(), ref)).To(Succeed())
}

func TestARunPastItsDeadlineIsTimedOut(t *testing.T) {
	for _, byAWX := range []bool{false, true} {
		t.Run(fmt.Sprintf("ended by AWX: %t", byAWX), func(t *testing.T) {
			g := NewWithT(t)
			server := start(t)
			server.Change("CAPLV onboard_host", map[string]any{"ask_timeout_on_launch": byAWX})
			backend := connect(t, server)
			ref, err := backend.Submit(t.Context(), request("late", with("seconds", 300), func(r *ansible.Request) { r.Deadline = 3 * time.Second }))
			g.Expect(err).NotTo(HaveOccurred())
			status := finished(t, backend, ref)
			g.Expect(status.Phase).To(Equal(ansible.TimedOut), "%+v", status)
		})
	}
}

func TestAHostThatTheInventoryLacksIsNoSuccess(t *testing.T) {
	g := NewWithT(t)
	backend := connect(t, start(t))
	ref, err := backend.Submit(t.Context(), request("half", func(r *ansible.Request) {
		r.Hosts = append(r.Hosts, ansible.Host{Name: "gone.site", Address: "127.0.0.3", HostKeys: []string{hostKey}})
	}))
	g.Expect(err).NotTo(HaveOccurred())
	status := finished(t, backend, ref)
	g.Expect(status.Phase).To(Equal(ansible.Failed))
	g.Expect(status.Hosts["one.site"].Phase).To(Equal(ansible.Succeeded))
	g.Expect(status.Hosts["gone.site"].Message).To(ContainSubstring("has no host gone.site"))

	ref, err = backend.Submit(t.Context(), request("none", func(r *ansible.Request) { r.Hosts[0].Name = "gone.site" }))
	g.Expect(err).NotTo(HaveOccurred())
	status = finished(t, backend, ref)
	g.Expect(status.Phase).To(Equal(ansible.Failed))
	g.Expect(status.Message).To(ContainSubstring("leaves us with no hosts to target"), "%+v", status)
}

func TestAJobThatAWXLosesIsLost(t *testing.T) {
	for status, explanation := range map[string]string{
		"error":  "",
		"failed": "Task was marked as running but was not present in the job queue, so it has been marked as failed.",
	} {
		t.Run(status, func(t *testing.T) {
			g := NewWithT(t)
			server := start(t)
			backend := connect(t, server)
			ref, err := backend.Submit(t.Context(), request("lost", with("seconds", 300)))
			g.Expect(err).NotTo(HaveOccurred())
			number, err := strconv.Atoi(ref.ID)
			g.Expect(err).NotTo(HaveOccurred())
			server.End(number, status, explanation)
			got := finished(t, backend, ref)
			g.Expect(got.Phase).To(Equal(ansible.Lost))
			g.Expect(got.Message).To(Equal(cmp.Or(explanation, "the run ended, and nobody knows how: look at the output of the job in AWX")))

			server.Forgotten(number)
			_, err = backend.Status(t.Context(), ref)
			refusal(t, err, ansible.UnknownRun)
			refusal(t, backend.Cancel(t.Context(), ref), ansible.UnknownRun)
			refusal(t, backend.Follow(t.Context(), ref, 0, func(ansible.Event) {}), ansible.UnknownRun)
		})
	}
}

func TestAJobOfSomebodyElseIsNotTheRun(t *testing.T) {
	g := NewWithT(t)
	backend := connect(t, start(t))
	ref, err := backend.Submit(t.Context(), request("mine"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, other := range []ansible.Ref{{Key: "other", ID: ref.ID}, {Key: "mine"}, {Key: "mine", ID: "../users/1"}, {Key: "mine", ID: "4711"}} {
		_, err := backend.Status(t.Context(), other)
		refusal(t, err, ansible.UnknownRun)
	}
	finished(t, backend, ref)
}
