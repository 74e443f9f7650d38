// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/caplv/caplv/operator/controller/controlplane"
)

// setupControlPlane registers the reconciler that gives Cluster API access to the cluster that it runs on.
func setupControlPlane(ctx context.Context, mgr ctrl.Manager, o *options, concurrency controller.Options) error {
	account, err := o.clusterAPIServiceAccount()
	if err != nil {
		return err
	}
	if err := (&controlplane.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Config: mgr.GetConfig(), ServiceAccount: account,
		Recorder: mgr.GetEventRecorder("libvirtexternalcontrolplane"), WatchFilterValue: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrency); err != nil {
		return fmt.Errorf("setting up the LibvirtExternalControlPlane reconciler: %w", err)
	}
	return nil
}

// clusterAPIServiceAccount is whom Cluster API acts as in the cluster that it runs on.
func (o *options) clusterAPIServiceAccount() (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(o.clusterAPIAccount, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, fmt.Errorf("--cluster-api-service-account is %q; it must be NAMESPACE/NAME", o.clusterAPIAccount)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
