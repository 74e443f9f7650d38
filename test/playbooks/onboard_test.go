// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package playbooks

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/test/bench/host"
)

// TestAHostIsHardenedForSessionMode goes through the life of a host in system mode: onboarded with a base image, verified,
// hardened, off-boarded.
func TestAHostIsHardenedForSessionMode(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	h := up(t, "system", image)
	const source = "/root/node.qcow2"
	g.Expect(h.Run(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", source, "64M")).To(Succeed())
	sum, err := h.Exec(t.Context(), "sha256sum", source)
	g.Expect(err).NotTo(HaveOccurred())
	before := list(t, h)
	vars := variables(t, "system", map[string]any{
		// Numbers as texts, as "-e name=value" gives them.
		"caplv_base_image_reserve_mib": "16", "caplv_base_image_max_gib": "1",
		"caplv_base_images": []any{map[string]any{
			"name": "node.qcow2", "sha256": strings.Fields(sum)[0], "sources": []any{map[string]any{"url": "file://" + source}},
		}},
	})

	g.Expect(onboard(t, h, vars).Hosts[h.Name].Changed).To(BeNumerically(">", 0))
	expectRecord(t, h, "system")
	g.Expect(h.Run(t.Context(), "cmp", source, "/var/lib/libvirt/images/node.qcow2")).To(Succeed())
	g.Expect(onboard(t, h, vars).Changed).To(BeEmpty(), "a second run changes nothing")
	g.Expect(play(t, "stage_base_image.yml", h, vars).Changed).To(BeEmpty(), "onboarding has put the image there")

	g.Expect(play(t, "harden_session.yml", h, vars).Hosts[h.Name].Changed).To(BeNumerically(">", 0))
	hardened := list(t, h)
	g.Expect(play(t, "harden_session.yml", h, vars).Changed).To(BeEmpty(), "a second run changes nothing")
	g.Expect(play(t, "verify_host.yml", h, vars).Changed).To(BeEmpty(), "verifying changes nothing")
	g.Expect(lines(list(t, h).Since(hardened))).To(BeEmpty(), "and touches nothing")

	offboard(t, h, nil)
	g.Expect(lines(list(t, h).Since(before))).To(BeEmpty(), "off-boarding leaves what was there before, and nothing else")
}

// TestABareHostIsOnboarded also installs packages, with the ansible-core that RHEL 8 needs.
func TestABareHostIsOnboarded(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	h := up(t, "bare", "debian12")
	vars := variables(t, "session", nil)
	old := suite.runner
	old.Environment = ".venv-el8"
	first, err := old.Run(t.Context(), "onboard_host.yml", only(h), Options{Vars: vars})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(first.Changed).NotTo(BeEmpty())
	g.Expect(onboard(t, h, vars).Changed).To(BeEmpty(), "whichever version of Ansible, the outcome is the same")
}

// expectRecord expects that the host says how it is set up.
func expectRecord(t *testing.T, h *host.Host, mode string) {
	t.Helper()
	g := NewWithT(t)
	record, err := h.Exec(t.Context(), "cat", "/etc/ansible/facts.d/caplv.fact")
	g.Expect(err).NotTo(HaveOccurred())
	var said struct{ Version, Mode, Account string }
	g.Expect(json.Unmarshal([]byte(record), &said)).To(Succeed())
	g.Expect(said.Mode).To(Equal(mode))
	g.Expect(said.Account).To(Equal("caplv"))
	g.Expect(said.Version).NotTo(BeEmpty())
}
