// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package playbooks

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// cuts are where a run is killed, as parts of its tasks. They are spread over the roles: the first tenths are validation.
var cuts = []float64{0.35, 0.5, 0.6, 0.7, 0.8, 0.9}

// TestAnInterruptedRunIsFinishedByTheNext kills runs at several tasks, with what they have running on the host, one after the
// other on one host, each a little further than the one before, and compares with a host that was onboarded in one go.
func TestAnInterruptedRunIsFinishedByTheNext(t *testing.T) {
	g := NewWithT(t)
	whole, cut := up(t, "whole", image), up(t, "cut", image)
	vars := variables(t, "session", nil)

	wholeBefore, cutBefore := list(t, whole), list(t, cut)
	first := onboard(t, whole, vars)
	want := list(t, whole).Since(wholeBefore)

	for i, part := range cuts {
		// Every other one in the middle of the task: its module may have changed half of what it is about to.
		after := time.Duration(i%2) * 400 * time.Millisecond
		task := int(part * float64(first.Tasks))
		t.Run(fmt.Sprintf("at task %d of %d after %s", task, first.Tasks, after), func(t *testing.T) {
			g := NewWithT(t)
			_, err := suite.runner.Run(t.Context(), "onboard_host.yml", only(cut), Options{Vars: vars, CutAtTask: task, CutAfter: after})
			g.Expect(err).To(MatchError(ErrCut))
			g.Expect(EndLeftovers(t.Context(), cut)).To(Succeed())
		})
	}
	onboard(t, cut, vars)
	g.Expect(lines(list(t, cut).Since(cutBefore))).To(Equal(lines(want)), "the same as in one go")

	// The record survived all of it: what is taken away is what was added.
	_, err := suite.runner.Run(t.Context(), "offboard_host.yml", only(cut), Options{CutAtTask: 20})
	g.Expect(err).To(MatchError(ErrCut))
	g.Expect(EndLeftovers(t.Context(), cut)).To(Succeed())
	offboard(t, cut, nil)
	g.Expect(lines(list(t, cut).Since(cutBefore))).To(BeEmpty(), "off-boarding that was interrupted is finished by the next")
}
