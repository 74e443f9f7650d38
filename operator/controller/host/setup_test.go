// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/session"
	"github.com/caplv/caplv/operator/setup"
)

func TestWhatTheRolesHaveRecordedIsShown(t *testing.T) {
	b := newBench(t, nil)
	b.connector.facts = setup.Facts{RolesVersion: "1.2.3", Mode: setup.ModeSystem, Account: "a"}
	lh, _ := b.reconcile()
	b.Expect(lh.Status.Setup).To(HaveValue(Equal(infrav1.HostSetup{RolesVersion: "1.2.3", Mode: infrav1.HostModeSystem, Account: "a"})))
	b.Expect(conditions.GetMessage(lh, infrav1.HostReadyCondition)).To(HaveSuffix("to machines"), "there is nothing to remark")

	b.connector.facts = setup.Facts{}
	b.addMachine()
	b.now = b.now.Add(time.Hour)
	lh, _ = b.reconcile()
	b.Expect(lh.Status.Setup).To(BeNil(), "what is taken back on the host is taken back here")
	b.Expect(conditions.IsTrue(lh, infrav1.HostReadyCondition)).To(BeTrue(), "a host may be set up without the roles")
}

func TestAHostThatWasSetUpForAnotherUseSaysSo(t *testing.T) {
	session := &session.Error{Missing: []session.Piece{{Name: session.PieceLinger, Problem: "it is off", Remedy: "turn it on"}}}
	for _, row := range []struct {
		name, uri  string
		facts      setup.Facts
		method     string
		err        error
		wantReason string
		want       string
	}{
		{"session mode on a host for system mode", "qemu+ssh://a@b/session", setup.Facts{Mode: setup.ModeSystem, Account: "a"}, "ProbeSession", session,
			infrav1.SessionModeMisconfiguredReason, "turn it on (it was set up for system mode and spec.uri ends in /session: run playbooks/onboard_host.yml with caplv_mode=session, or correct spec.uri)"},
		{"another account", "qemu+ssh://a@b/system", setup.Facts{Mode: setup.ModeSystem, Account: "svc"}, "ProbeHelper",
			&hostctl.Error{Code: hostctl.CodeHelperNotPermitted, Message: "no"}, infrav1.HelperUnavailableReason, "no (it was set up for account svc"},
		{"no helper on a host that was never set up", "qemu+ssh://a@b/session", setup.Facts{}, "ProbeHelper",
			&hostctl.Error{Code: hostctl.CodeHelperMissing, Message: "no"}, infrav1.HelperUnavailableReason, "no (with caplv_mode=session and caplv_user=a)"},
		{"a host that works all the same", "qemu+ssh://a@b/system", setup.Facts{Mode: setup.ModeSession}, "", nil,
			infrav1.HostReadyReason, "to machines (it was set up for session mode"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, func(lh *infrav1.LibvirtHost) { lh.Spec.URI = row.uri })
			b.r.Hosts = ailingConnector{&ailingHost{usableHost: usableHost{facts: row.facts}, method: row.method, ailment: row.err}}
			lh, _ := b.reconcile()
			b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(row.wantReason))
			b.Expect(conditions.GetMessage(lh, infrav1.HostReadyCondition)).To(ContainSubstring(row.want))
			if row.facts == (setup.Facts{}) {
				b.Expect(lh.Status.Setup).To(BeNil())
			} else {
				b.Expect(lh.Status.Setup.Mode).To(BeEquivalentTo(row.facts.Mode), "it is known although the probe failed")
			}
		})
	}
}

func TestWhatWasRecordedStaysWhileTheHostCannotBeAsked(t *testing.T) {
	b := newBench(t, func(lh *infrav1.LibvirtHost) { lh.Status.Setup = &infrav1.HostSetup{Mode: infrav1.HostModeSystem} })
	b.r.Hosts = ailingConnector{&ailingHost{method: "ProbeHelper", ailment: link("Unreachable")}}
	lh, _ := b.reconcile()
	b.Expect(lh.Status.Setup).To(HaveValue(Equal(infrav1.HostSetup{Mode: infrav1.HostModeSystem})))
}
