// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootartifact

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/hosts"
)

// Collect removes from a host the boot artifacts that no cluster wants any more; those of a host that is being deleted, all of them. It is called
// while the host has no machine, and ends what is under way for the last one. What cannot be removed stays recorded, for the next time.
func (s *Stager) Collect(ctx context.Context, lh *infrav1.LibvirtHost) error {
	if err := s.end(ctx, lh.UID); err != nil {
		return err
	}
	live := &infrav1.LibvirtHost{}
	if err := s.APIReader.Get(ctx, client.ObjectKeyFromObject(lh), live); err != nil {
		return client.IgnoreNotFound(err)
	}
	garbage := live.Status.BootArtifacts
	if live.DeletionTimestamp.IsZero() {
		clusters := &infrav1.LibvirtClusterList{}
		if err := s.Client.List(ctx, clusters, client.InNamespace(lh.Namespace)); err != nil {
			return fmt.Errorf("listing LibvirtClusters: %w", err)
		}
		living, err := s.living(ctx, clusters.Items)
		if err != nil {
			return err
		}
		garbage = unwanted(garbage, living)
	}
	if len(garbage) == 0 {
		return nil
	}
	host, err := s.Hosts.Connect(ctx, live)
	if err != nil {
		return err
	}
	removed, err := remove(ctx, host, garbage)
	if len(removed) == 0 {
		return err
	}
	return errors.Join(err, s.record(ctx, live, func(records []infrav1.HostBootArtifact) []infrav1.HostBootArtifact { return without(records, removed) }))
}

// living leaves out what is being deleted. A LibvirtCluster is deleted after the machines of its Cluster: the last of them should take the files along.
func (s *Stager) living(ctx context.Context, clusters []infrav1.LibvirtCluster) ([]infrav1.LibvirtCluster, error) {
	var living []infrav1.LibvirtCluster
	for i := range clusters {
		owner, err := util.GetOwnerCluster(ctx, s.Client, clusters[i].ObjectMeta)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading the Cluster of LibvirtCluster %s: %w", clusters[i].Name, err)
		}
		if clusters[i].DeletionTimestamp.IsZero() && (owner == nil || owner.DeletionTimestamp.IsZero()) {
			living = append(living, clusters[i])
		}
	}
	return living, nil
}

// remove removes files from a host, and returns those that are gone.
func remove(ctx context.Context, host hosts.BootFiles, garbage []infrav1.HostBootArtifact) (removed []infrav1.HostBootArtifact, err error) {
	for _, each := range garbage {
		if failure := removeOne(ctx, host, each); failure != nil {
			err = errors.Join(err, fmt.Errorf("removing boot artifact %s from %s: %w", each.SHA256, each.HostPath, failure))
			continue
		}
		removed = append(removed, each)
	}
	return removed, err
}

const (
	// busyTries is how often a file is asked to be removed while its transfer is ending, busyPause apart.
	busyTries = 5
	busyPause = time.Second
)

func removeOne(ctx context.Context, host hosts.BootFiles, r infrav1.HostBootArtifact) error {
	for try := 1; ; try++ {
		err := host.RemoveBootFiles(ctx, r.HostPath, string(r.SHA256))
		if hostctl.CodeOf(err) != hostctl.CodeBusy || try == busyTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(busyPause):
		}
	}
}
