// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"os"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/test/playbooks/fleet"
)

func TestARunSucceeds(t *testing.T) {
	g := NewWithT(t)
	s := start(t)
	host := server(t, fleet.Options{Name: "one.ns"}).Host
	asked := request("first", ansible.OnboardHost, nil, host)
	ref := s.submit(asked)
	g.Expect(ref).To(Equal(ansible.Ref{Key: "first"}))
	status, events := s.ended("first")
	g.Expect(status.Phase).To(Equal(ansible.Succeeded), "%+v", status)
	g.Expect(status.AnsibleVersion).To(HavePrefix("2.19."))
	g.Expect(status.RolesVersion).To(MatchRegexp(`^0\.1\.0\+[0-9a-f]{12}$`))
	g.Expect(status.Hosts).To(HaveKeyWithValue("one.ns", gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{
		"Phase": Equal(ansible.Succeeded), "Changed": Equal(1), "Failed": Equal(0), "Skipped": Equal(1), "ChangedTasks": Equal([]string{"Something is done"}),
	})))
	// Four tasks of the play and twice two that were included.
	g.Expect([]int{status.TasksDone, status.TasksKnown}).To(Equal([]int{8, 8}))

	for i, event := range events {
		g.Expect(event.Sequence).To(Equal(int64(i + 1)))
	}
	g.Expect(events[0].Type).To(Equal(ansible.PlayStarted))
	g.Expect(events[len(events)-1]).To(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{"Type": Equal(ansible.RunEnded), "Outcome": Equal("Succeeded")}))
	g.Expect(events).To(ContainElement(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{
		"Type": Equal(ansible.HostResulted), "Task": Equal("Something is done"), "Host": Equal("one.ns"), "Outcome": Equal("changed"),
	})))

	t.Run("and is the same one for whoever asks again", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(s.submit(asked)).To(Equal(ref))
		g.Expect(s.status("first").Finished).To(Equal(status.Finished))
	})
	t.Run("and its key is not free for another", func(t *testing.T) {
		other := asked
		other.Check = true
		_, err := s.Submit(t.Context(), other)
		NewWithT(t).Expect(ansible.ReasonOf(err)).To(Equal(ansible.Rejected))
	})
	t.Run("and leaves nothing in the working directory", func(t *testing.T) {
		NewWithT(t).Expect(os.ReadDir(s.workDir())).To(BeEmpty())
	})
	t.Run("and keeps what Ansible printed", func(t *testing.T) {
		content, err := os.ReadFile(s.artifact("first", "output.log"))
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(content)).To(And(ContainSubstring("TASK [Something is done]"), ContainSubstring("PLAY RECAP")))
	})
}
