// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"fmt"
	"regexp"

	"github.com/caplv/caplv/operator/session"
	"github.com/caplv/caplv/operator/virsh"
)

// ProbeSession implements Host.
func (h *host) ProbeSession(ctx context.Context, virtType string) error {
	if h.mode != virsh.ModeSession {
		return nil
	}
	return session.Probe(ctx, h.conn, session.Query{VirtType: virtType})
}

// Observe implements virsh.Client.
func (h *host) Observe(ctx context.Context, query virsh.Query) (virsh.Observation, error) {
	obs, err := h.Client.Observe(ctx, query)
	return obs, h.explainSession(ctx, err)
}

// StartDomain implements virsh.Client.
func (h *host) StartDomain(ctx context.Context, name string) error {
	return h.explainSession(ctx, h.Client.StartDomain(ctx, name))
}

// helperBridge finds the bridge in libvirt's report about the helper. What the helper itself has said may be missing there:
// libvirt does not always get to read it.
var helperBridge = regexp.MustCompile(`--br=(\S+)`)

// explainSession replaces an error that a host in session mode causes by lacking something with one that says what it lacks.
func (h *host) explainSession(ctx context.Context, err error) error {
	if h.mode != virsh.ModeSession {
		return err
	}
	var query session.Query
	switch virsh.ReasonOf(err) {
	case virsh.LibvirtUnavailable:
	case virsh.BridgeHelperFailed, virsh.BridgeNotFound:
		if m := helperBridge.FindStringSubmatch(err.Error()); m != nil {
			query.Bridges = []string{m[1]}
		}
	default:
		return err
	}
	if cause := session.Probe(ctx, h.conn, query); len(session.MissingOf(cause)) > 0 {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return err
}
