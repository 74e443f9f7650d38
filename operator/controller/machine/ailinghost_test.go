// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/virsh"
)

// ailingHost fails one of its methods while ailment is set.
type ailingHost struct {
	*fakeHost
	method  string
	ailment error
}

func (h *ailingHost) ail(method string) error {
	if h.method == method {
		return h.ailment
	}
	return nil
}

func (h *ailingHost) Observe(ctx context.Context, q virsh.Query) (virsh.Observation, error) {
	if err := h.ail("Observe"); err != nil {
		return virsh.Observation{}, err
	}
	return h.fakeHost.Observe(ctx, q)
}

func (h *ailingHost) DefineDomain(ctx context.Context, xml string) error {
	if err := h.ail("DefineDomain"); err != nil {
		return err
	}
	return h.fakeHost.DefineDomain(ctx, xml)
}

func (h *ailingHost) StartDomain(ctx context.Context, name string) error {
	if err := h.ail("StartDomain"); err != nil {
		return err
	}
	return h.fakeHost.StartDomain(ctx, name)
}

func (h *ailingHost) CreateVolume(ctx context.Context, pool, xml string) error {
	if err := h.ail("CreateVolume"); err != nil {
		return err
	}
	return h.fakeHost.CreateVolume(ctx, pool, xml)
}

func (h *ailingHost) DeleteVolume(ctx context.Context, pool, name string) error {
	if err := h.ail("DeleteVolume"); err != nil {
		return err
	}
	return h.fakeHost.DeleteVolume(ctx, pool, name)
}

func (h *ailingHost) Stage(ctx context.Context, r hostctl.StageRequest) (bool, error) {
	if err := h.ail("Stage"); err != nil {
		return false, err
	}
	return h.fakeHost.Stage(ctx, r)
}

// ailingConnector gives out a host that ails.
type ailingConnector struct{ host *ailingHost }

func (c ailingConnector) Connect(context.Context, *infrav1.LibvirtHost) (hosts.Host, error) {
	return c.host, c.host.ail("Connect")
}
func (ailingConnector) Forget(client.ObjectKey) {}

// staleHost lists a volume whose file is gone, until its pool is refreshed.
type staleHost struct {
	*ailingHost
	stale string
}

func (h *staleHost) DeleteVolume(ctx context.Context, pool, name string) error {
	if name == h.stale {
		return &virsh.Error{Reason: virsh.Unknown, Command: "vol-delete", Message: "cannot unlink"}
	}
	return h.ailingHost.DeleteVolume(ctx, pool, name)
}

func (h *staleHost) RefreshPool(ctx context.Context, name string) error {
	delete(h.pools[name].volumes, h.stale)
	return h.ailingHost.RefreshPool(ctx, name)
}

type staleConnector struct {
	ailingConnector
	host *staleHost
}

func (c staleConnector) Connect(context.Context, *infrav1.LibvirtHost) (hosts.Host, error) {
	return c.host, nil
}
