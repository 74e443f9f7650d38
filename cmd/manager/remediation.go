// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/caplv/caplv/operator/controller/remediation"
)

// setupRemediation registers the reconciler that helps unhealthy machines.
func setupRemediation(ctx context.Context, mgr ctrl.Manager, o *options, concurrency controller.Options) error {
	if err := (&remediation.Reconciler{
		Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("libvirtremediation"), WatchFilterValue: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrency); err != nil {
		return fmt.Errorf("setting up the LibvirtRemediation reconciler: %w", err)
	}
	return nil
}
