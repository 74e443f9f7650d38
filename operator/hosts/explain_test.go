// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostconn"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/session"
	"github.com/caplv/caplv/operator/virsh"
)

// TestEveryReasonOfVirshHasItsCondition leaves out what a reconciler never shows: an operation's success, and what has no name.
func TestEveryReasonOfVirshHasItsCondition(t *testing.T) {
	for reason, want := range map[virsh.Reason]string{
		virsh.VirshMissing:           infrav1.VirshMissingReason,
		virsh.LibvirtUnavailable:     infrav1.LibvirtUnavailableReason,
		virsh.VirtTypeUnsupported:    infrav1.VirtTypeUnsupportedReason,
		virsh.MachineTypeUnsupported: infrav1.MachineTypeUnsupportedReason,
		virsh.FirmwareNotFound:       infrav1.FirmwareNotFoundReason,
		virsh.InvalidDefinition:      infrav1.InvalidDefinitionReason,
		virsh.PoolNotFound:           infrav1.PoolNotFoundReason,
		virsh.PoolInactive:           infrav1.PoolInactiveReason,
		virsh.PoolConflict:           infrav1.PoolConflictReason,
		virsh.PoolExists:             infrav1.PoolAlreadyExistsReason,
		virsh.VolumeNotFound:         infrav1.VolumeNotFoundReason,
		virsh.VolumeExists:           infrav1.VolumeAlreadyExistsReason,
		virsh.VolumeBusy:             infrav1.VolumeBusyReason,
		virsh.DomainNotFound:         infrav1.DomainMissingReason,
		virsh.DomainExists:           infrav1.DomainAlreadyExistsReason,
		virsh.NetworkNotFound:        infrav1.NetworkNotFoundReason,
		virsh.BridgeNotFound:         infrav1.BridgeNotFoundReason,
		virsh.BridgeHelperFailed:     infrav1.SessionModeMisconfiguredReason,
		virsh.ImageInUse:             infrav1.ImageInUseReason,
		virsh.ImageInvalid:           infrav1.ImageInvalidReason,
		virsh.FileNotFound:           infrav1.HostFileNotFoundReason,
		virsh.PermissionDenied:       infrav1.HostPermissionDeniedReason,
		virsh.NoSpace:                infrav1.NoSpaceReason,
		virsh.InsufficientMemory:     infrav1.InsufficientCapacityReason,
		virsh.AlreadyActive:          "Fallback",
		virsh.NotActive:              "Fallback",
		virsh.StillActive:            "Fallback",
		virsh.Unknown:                "Fallback",
	} {
		t.Run(string(reason), func(t *testing.T) {
			g := NewWithT(t)
			got, message := hosts.Explain(fmt.Errorf("step: %w", &virsh.Error{Reason: reason, Command: "start", Message: "x"}), "Fallback")
			g.Expect(got).To(Equal(want))
			g.Expect(message).To(HavePrefix("step: virsh start: x"))
			g.Expect(got).To(MatchRegexp("^[A-Z][A-Za-z0-9]*$"))
		})
	}
}

func TestExplain(t *testing.T) {
	for _, row := range []struct {
		name       string
		err        error
		wantReason string
		wantText   string
	}{
		{"a mistake in the object", hosts.NewConfigError(infrav1.InvalidURIReason, "spec.uri is odd"), infrav1.InvalidURIReason, "spec.uri is odd"},
		{"a refused key", &hostconn.Error{Reason: hostconn.Unauthorized, Address: "h:22", Err: errors.New("no")}, infrav1.UnauthorizedReason, "h:22"},
		{"a connection that we closed", &hostconn.Error{Reason: hostconn.Closed, Address: "h:22", Err: hostconn.ErrIdle}, infrav1.UnreachableReason, "h:22"},
		{"a dead daemon behind a step", fmt.Errorf("step: %w", &virsh.Error{Reason: virsh.LibvirtUnavailable, Command: "list", Message: "gone"}), infrav1.LibvirtUnavailableReason, "virsh list: gone"},
		{"a missing bridge", &virsh.Error{Reason: virsh.BridgeNotFound, Command: "start", Message: "x"}, infrav1.BridgeNotFoundReason, "virsh start"},
		{"no helper", &hostctl.Error{Code: hostctl.CodeHelperMissing, Message: "gone"}, infrav1.HelperUnavailableReason, "gone"},
		{"an old helper", &hostctl.Error{Code: hostctl.CodeHelperOutdated, Message: "old"}, infrav1.HelperUnavailableReason, "old"},
		{"a directory of somebody else", &hostctl.Error{Code: hostctl.CodeNotOurs, Message: "a link"}, infrav1.DirectoryAlreadyExistsReason, "a link; move it"},
		{"a full tmpfs", &hostctl.Error{Code: hostctl.CodeNoSpace, Message: "full"}, infrav1.NoSpaceReason, "full"},
		{"a piece of session mode", fmt.Errorf("%w (%w)", &session.Error{Missing: []session.Piece{{Name: session.PieceLinger, Problem: "off", Remedy: "on"}}},
			&virsh.Error{Reason: virsh.LibvirtUnavailable, Message: "gone"}), infrav1.SessionModeMisconfiguredReason, "lingering: off; on"},
		{"a missing bridge in session mode", &session.Error{Missing: []session.Piece{{Name: session.PieceBridge, Problem: "no", Remedy: "do"}}}, infrav1.BridgeNotFoundReason, "bridge: no; do"},
		{"a bridge helper without a cause", &virsh.Error{Reason: virsh.BridgeHelperFailed, Command: "start", Message: "x"}, infrav1.SessionModeMisconfiguredReason, "bridge.conf"},
		{"a deadline", fmt.Errorf("waiting: %w", context.DeadlineExceeded), infrav1.TimeoutReason, "did not answer in time"},
		{"something without a name keeps its words", &virsh.Error{Reason: virsh.Unknown, Command: "start", Message: "odd"}, "Fallback", "virsh start: odd"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			reason, message := hosts.Explain(row.err, "Fallback")
			g.Expect(reason).To(Equal(row.wantReason))
			g.Expect(message).To(ContainSubstring(row.wantText))
		})
	}
}
