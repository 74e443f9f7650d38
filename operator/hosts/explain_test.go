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
	"github.com/caplv/caplv/operator/virsh"
)

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
		{"a full tmpfs", &hostctl.Error{Code: hostctl.CodeNoSpace, Message: "full"}, infrav1.NoSpaceReason, "full"},
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
