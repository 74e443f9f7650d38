// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package playbooks

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/test/bench/host"
)

// cuts are where a run is killed, as parts of its tasks, and how long after the start of that task: its module may have changed
// half of what it is about to. They are spread over the roles; the first quarter is validation.
var cuts = []struct {
	part  float64
	after time.Duration
}{{0.45, 0}, {0.65, 400 * time.Millisecond}, {0.85, 0}}

// TestAHostIsOnboardedInOneGoOrInSeveral goes through the life of two hosts in session mode. One is checked, onboarded and
// off-boarded. The runs of the other are killed, one after the other, each a little further than the one before.
func TestAHostIsOnboardedInOneGoOrInSeveral(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	whole, cut := up(t, "whole", image), up(t, "cut", image)
	before := list(t, whole)
	vars := variables(t, "session", nil)

	checked := onboard(t, whole, vars, "--check")
	g.Expect(checked.Hosts[whole.Name].Changed).To(BeNumerically(">", 0), "check mode says what would change")
	g.Expect(lines(list(t, whole).Since(before))).To(BeEmpty(), "check mode touches nothing")

	first := onboard(t, whole, vars)
	expectRecord(t, whole, "session")
	after := list(t, whole)

	t.Run("in one go", func(t *testing.T) {
		t.Parallel()
		g := NewWithT(t)
		g.Expect(onboard(t, whole, vars).Changed).To(BeEmpty(), "a second run changes nothing")
		g.Expect(lines(list(t, whole).Since(after))).To(BeEmpty(), "and touches nothing")
		offboard(t, whole, nil)
		g.Expect(lines(list(t, whole).Since(before))).To(BeEmpty(), "off-boarding leaves what was there before, and nothing else")
		g.Expect(offboard(t, whole, nil).Changed).To(BeEmpty(), "a second run changes nothing")
	})

	t.Run("in several", func(t *testing.T) {
		t.Parallel()
		g := NewWithT(t)
		cutBefore := list(t, cut)
		for _, c := range cuts {
			kill(t, "onboard_host.yml", cut, Options{Vars: vars, CutAtTask: int(c.part * float64(first.Tasks)), CutAfter: c.after})
		}
		onboard(t, cut, vars)
		g.Expect(lines(list(t, cut).Since(cutBefore))).To(Equal(lines(after.Since(before))), "the same as in one go")

		// The record survived all of it: what is taken away is what was added.
		kill(t, "offboard_host.yml", cut, Options{CutAtTask: 20})
		offboard(t, cut, nil)
		g.Expect(lines(list(t, cut).Since(cutBefore))).To(BeEmpty(), "off-boarding that was interrupted is finished by the next")
	})
}

// kill runs a playbook that is killed, with what it has running on the host.
func kill(t *testing.T, playbook string, h *host.Host, o Options) {
	t.Helper()
	g := NewWithT(t)
	_, err := suite.runner.Run(t.Context(), playbook, only(h), o)
	g.Expect(err).To(MatchError(ErrCut), "at task %d", o.CutAtTask)
	g.Expect(EndLeftovers(t.Context(), h)).To(Succeed())
}
