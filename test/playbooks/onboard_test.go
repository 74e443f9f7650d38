// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package playbooks

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
)

// TestAHostIsOnboardedAndOffboardedInEitherMode goes through a host's life: check mode, the first run, the second, off-boarding.
func TestAHostIsOnboardedAndOffboardedInEitherMode(t *testing.T) {
	for _, mode := range []string{"system", "session"} {
		t.Run(mode, func(t *testing.T) {
			g := NewWithT(t)
			h := up(t, "life-"+mode, image)
			before := list(t, h)
			vars := variables(t, mode, nil)

			checked := onboard(t, h, vars, "--check")
			g.Expect(checked.Hosts[h.Name].Changed).To(BeNumerically(">", 0), "check mode says what would change")
			g.Expect(lines(list(t, h).Since(before))).To(BeEmpty(), "check mode touches nothing")

			first := onboard(t, h, vars)
			g.Expect(first.Hosts[h.Name].Changed).To(BeNumerically(">", 0))
			after := list(t, h)
			record, err := h.Exec(t.Context(), "cat", "/etc/ansible/facts.d/caplv.fact")
			g.Expect(err).NotTo(HaveOccurred())
			var said struct{ Version, Mode, Account string }
			g.Expect(json.Unmarshal([]byte(record), &said)).To(Succeed())
			g.Expect(said.Mode).To(Equal(mode))
			g.Expect(said.Account).To(Equal("caplv"))
			g.Expect(said.Version).NotTo(BeEmpty())

			second := onboard(t, h, vars)
			g.Expect(second.Changed).To(BeEmpty(), "a second run changes nothing")
			g.Expect(lines(list(t, h).Since(after))).To(BeEmpty())

			offboard(t, h, nil)
			g.Expect(lines(list(t, h).Since(before))).To(BeEmpty(), "off-boarding leaves what was there before, and nothing else")
			g.Expect(offboard(t, h, nil).Changed).To(BeEmpty(), "a second run changes nothing")
		})
	}
}

// TestABareHostIsOnboarded also installs packages. In check mode before, none of them is there.
func TestABareHostIsOnboarded(t *testing.T) {
	g := NewWithT(t)
	h := up(t, "bare", "debian12")
	before := list(t, h)
	vars := variables(t, "session", nil)
	onboard(t, h, vars, "--check")
	g.Expect(lines(list(t, h).Since(before))).To(BeEmpty(), "check mode touches nothing")
	// With the ansible-core that RHEL 8 needs.
	old := suite.runner
	old.Environment = ".venv-el8"
	for _, runner := range []Runner{old, suite.runner} {
		result, err := runner.Run(t.Context(), "onboard_host.yml", only(h), Options{Vars: vars})
		g.Expect(err).NotTo(HaveOccurred())
		if runner.Environment == ".venv" {
			g.Expect(result.Changed).To(BeEmpty(), "whichever version of Ansible, the outcome is the same")
		}
	}
}
