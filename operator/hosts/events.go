// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"fmt"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/virsh"
)

// Events starts a stream of what happens to the domains of the host behind a LibvirtHost. A host whose key nobody has recorded yet
// is not asked.
func Events(ctx context.Context, connector Connector, lh *infrav1.LibvirtHost) (*virsh.Events, error) {
	if lh.Spec.HostKeyFingerprint == "" && lh.Status.HostKeyFingerprint == "" {
		return nil, NewConfigError(infrav1.HostNotReadyReason, fmt.Sprintf("LibvirtHost %s has not been probed yet", lh.Name))
	}
	h, err := connector.Connect(ctx, lh)
	if err != nil {
		return nil, err
	}
	return h.Events(ctx)
}
