// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package references tells the cache of artifacts what clusters still want.
package references

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/artifact/fetch"
	"github.com/caplv/caplv/operator/artifact/source"
)

// interval is how often clusters are looked at. It matters when the cache needs room only.
const interval = time.Minute

// Cache is told. It is an *artifact.Cache.
type Cache interface {
	SetReferenced(sources []fetch.Source)
}

// Keeper is a manager.Runnable that tells the cache. It runs where the leader does, who is the one that fetches.
type Keeper struct {
	Cache Cache
	// Client lists LibvirtClusters.
	Client client.Reader
	Log    logr.Logger
}

// Start implements manager.Runnable.
func (k *Keeper) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := k.tell(ctx); err != nil && ctx.Err() == nil {
			k.Log.Error(err, "The cache of artifacts is not told what clusters refer to; it evicts by age meanwhile")
		}
	}, interval)
	return nil
}

func (k *Keeper) tell(ctx context.Context) error {
	list := &infrav1.LibvirtClusterList{}
	if err := k.Client.List(ctx, list); err != nil {
		return fmt.Errorf("listing LibvirtClusters: %w", err)
	}
	k.Cache.SetReferenced(Of(list.Items))
	return nil
}

// Of returns the sources of all base images and boot artifacts of clusters, without credentials, which do not tell files apart.
func Of(clusters []infrav1.LibvirtCluster) []fetch.Source {
	var sources []fetch.Source
	for i := range clusters {
		spec := &clusters[i].Spec
		if spec.BaseImage != nil {
			if s, err := source.BaseImage(spec.BaseImage.Source, nil); err == nil {
				sources = append(sources, s)
			}
		}
		if spec.BootArtifacts != nil {
			if kernel, initramfs, err := source.BootArtifacts(spec.BootArtifacts.Source, nil); err == nil {
				sources = append(sources, kernel, initramfs)
			}
		}
	}
	return sources
}
