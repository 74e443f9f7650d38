// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// TestWhatAnAbandonedMachineHasLeftGoesWhenItsHostIsBack has a host fall silent under a machine that is deleted. The machine is let go on request; its guest
// runs on until the host is back. A domain beside it that nobody of CAPLV made is not touched.
func TestWhatAnAbandonedMachineHasLeftGoesWhenItsHostIsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.expectHost("True/HostReady")
	w.on("foreign", "m=; "+defineForeign+"$v start $n")
	t.Cleanup(func() {
		_ = w.host.Run(cleanupContext(t), "virsh", "-c", "qemu:///system", "undefine", w.nodeName("foreign"))
	})
	w.untouched = w.listing()
	w.running("worker01", ephemeral)

	setLink := func(ctx context.Context, state string) error {
		return w.host.InNetwork(ctx, "ip", "link", "set", "br0", state)
	}
	w.g.Expect(setLink(t.Context(), "down")).To(Succeed())
	t.Cleanup(func() { _ = setLink(cleanupContext(t), "up") })
	w.deleteMachine("worker01")
	w.g.Eventually(func() string { return condition(w.machine("worker01"), infrav1.CleanupStalledCondition) }, provisionTime, poll).
		Should(BeElementOf("True/"+infrav1.UnreachableReason, "True/"+infrav1.TimeoutReason))
	w.annotate("worker01", infrav1.AbandonAnnotation, true)
	w.expectGone("worker01")
	w.g.Expect(w.on("worker01", "$v domstate $n")).To(Equal("running"))
	lh := w.fetchHost()
	w.g.Expect(lh.Status.Leftovers).To(ConsistOf(HaveField("Domain", w.nodeName("worker01"))))
	w.g.Expect(lh.Status.MachineRef).To(BeNil())
	w.g.Expect(w.eventReasons("LibvirtMachine", "worker01")).To(ContainElement("Abandoned"))

	w.g.Expect(setLink(t.Context(), "up")).To(Succeed())
	back := time.Now()
	w.g.Eventually(func() []infrav1.HostLeftover { return w.fetchHost().Status.Leftovers }, provisionTime, poll).Should(BeEmpty())
	t.Logf("collected %s after the host's return", time.Since(back).Round(100*time.Millisecond))
	w.g.Expect(w.eventReasons("LibvirtHost", "host")).To(ContainElement("LeftoverRemoved"))
	w.g.Expect(w.on("foreign", "$v domstate $n")).To(Equal("running"))
	w.expectListing(w.untouched)
	w.on("foreign", "$v destroy $n")
}
