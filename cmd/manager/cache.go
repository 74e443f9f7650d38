// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/caplv/caplv/operator/artifact"
	"github.com/caplv/caplv/operator/artifact/references"
)

// artifacts opens the cache of base images and boot artifacts, and has it told what clusters refer to.
func (o *options) artifacts(mgr ctrl.Manager) (*artifact.Cache, error) {
	size := o.imageCacheSize.Value()
	if size <= 0 {
		return nil, fmt.Errorf("--base-image-cache-size=%s: the cache needs room for the largest image; give it some, such as 60Gi", o.imageCacheSize.String())
	}
	cache, err := artifact.NewCache(o.imageCacheDir, artifact.Options{MaxBytes: size})
	if err != nil {
		return nil, fmt.Errorf("opening the cache of base images (--base-image-cache-dir=%s): %w", o.imageCacheDir, err)
	}
	return cache, mgr.Add(&references.Keeper{Cache: cache, Client: mgr.GetClient(), Log: mgr.GetLogger().WithName("artifacts")})
}
