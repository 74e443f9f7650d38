// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import "context"

// xmlFile is the file in the script's directory that definitions travel in.
const xmlFile = "definition.xml"

// DefineDomain implements Client.
func (s *Shell) DefineDomain(ctx context.Context, xml string) error {
	return s.change(ctx, cmd("define", "", xmlFile), xml)
}

// StartDomain implements Client.
func (s *Shell) StartDomain(ctx context.Context, name string) error {
	return s.change(ctx, cmd("start", "", name), "", AlreadyActive)
}

// DestroyDomain implements Client.
func (s *Shell) DestroyDomain(ctx context.Context, name string) error {
	return s.change(ctx, cmd("destroy", "", name), "", NotActive)
}

// UndefineDomain implements Client.
func (s *Shell) UndefineDomain(ctx context.Context, name string) error {
	return s.change(ctx, cmd("undefine", "--nvram --managed-save --snapshots-metadata", name), "", DomainNotFound)
}

// DefinePool implements Client.
func (s *Shell) DefinePool(ctx context.Context, xml string) error {
	return s.change(ctx, cmd("pool-define", "", xmlFile), xml)
}

// StartPool implements Client.
func (s *Shell) StartPool(ctx context.Context, name string) error {
	return s.change(ctx, cmd("pool-start", "", name), "", AlreadyActive)
}

// RefreshPool implements Client.
func (s *Shell) RefreshPool(ctx context.Context, name string) error {
	return s.change(ctx, cmd("pool-refresh", "", name), "")
}

// DestroyPool implements Client.
func (s *Shell) DestroyPool(ctx context.Context, name string) error {
	return s.change(ctx, cmd("pool-destroy", "", name), "", NotActive, PoolNotFound)
}

// UndefinePool implements Client.
func (s *Shell) UndefinePool(ctx context.Context, name string) error {
	return s.change(ctx, cmd("pool-undefine", "", name), "", PoolNotFound)
}

// CreateVolume implements Client.
func (s *Shell) CreateVolume(ctx context.Context, pool, xml string) error {
	return s.change(ctx, cmd("vol-create", "", pool, xmlFile), xml)
}

// DeleteVolume implements Client.
func (s *Shell) DeleteVolume(ctx context.Context, pool, name string) error {
	return s.change(ctx, cmd("vol-delete", "--pool", pool, name), "", VolumeNotFound)
}
