// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package playbooks

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/test/bench/host"
)

// define defines a domain that is off. One of CAPLV has its owner in the metadata.
func define(t *testing.T, h *host.Host, name string, caplv bool) {
	t.Helper()
	g := NewWithT(t)
	metadata := ""
	if caplv {
		metadata = `<metadata><caplv:owner xmlns:caplv="` + domain.XMLNamespace + `" namespace="default" name="` + name + `" uid="u"/></metadata>`
	}
	xml := `<domain type="qemu"><name>` + name + `</name>` + metadata + `<memory unit="MiB">16</memory><os><type arch="x86_64">hvm</type></os></domain>`
	g.Expect(h.WriteFile(t.Context(), "/tmp/"+name+".xml", []byte(xml))).To(Succeed())
	g.Expect(h.Run(t.Context(), "virsh", "-q", "-c", "qemu:///system", "define", "/tmp/"+name+".xml")).To(Succeed())
}

// TestOffboardingRefusesWhileMachinesExist runs on a host that was never onboarded: the check comes before anything else.
func TestOffboardingRefusesWhileMachinesExist(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	h := suite.shared
	define(t, h, "foreign", false)
	g.Expect(offboard(t, h, nil).Changed).To(BeEmpty(), "domains of others do not matter")
	define(t, h, "default-c-worker01", true)
	g.Expect(h.Run(t.Context(), "sh", "-c", "mkdir -p /run/caplv/m1 && mount -t tmpfs -o size=1m caplv /run/caplv/m1")).To(Succeed())
	before := list(t, h)

	result, err := suite.runner.Run(t.Context(), "offboard_host.yml", only(h), Options{})
	g.Expect(err).To(HaveOccurred())
	g.Expect(result.Failed).To(ConsistOf(And(
		ContainSubstring("default-c-worker01"), ContainSubstring("mount /run/caplv/m1"), Not(ContainSubstring("foreign")))))
	g.Expect(lines(list(t, h).Since(before))).To(BeEmpty(), "refusing touches nothing")

	forced := offboard(t, h, map[string]any{"caplv_offboard_force": true})
	g.Expect(forced.Output).To(ContainSubstring("default-c-worker01"), "what is removed is named")
	left, err := h.Exec(t.Context(), "virsh", "-q", "-c", "qemu:///system", "list", "--all", "--name")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(And(ContainSubstring("foreign"), Not(ContainSubstring("worker01"))))
	g.Expect(h.Run(t.Context(), "sh", "-c", "! grep /run/caplv /proc/mounts")).To(Succeed())
}
