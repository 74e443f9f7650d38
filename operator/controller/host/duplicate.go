// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"

	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/index"
	"github.com/caplv/caplv/operator/hosts"
)

// checkDuplicate refuses a host that an older LibvirtHost, of whatever namespace, reaches as well: each of them could be
// claimed by a machine.
func (r *Reconciler) checkDuplicate(ctx context.Context, lh *infrav1.LibvirtHost) error {
	others, err := r.duplicates(ctx, lh)
	if err != nil {
		return err
	}
	for i := range others {
		if older(&others[i], lh) {
			return hosts.NewConfigError(infrav1.DuplicateHostReason, fmt.Sprintf(
				"LibvirtHost %s reaches the same host (system UUID %s, SSH key %s); delete one of the two objects",
				client.ObjectKeyFromObject(&others[i]), lh.Status.SystemUUID, lh.Status.HostKeyFingerprint))
		}
	}
	return nil
}

// duplicates are the other objects whose host has the same UUID and the same SSH key. Vendors have shipped machines with equal
// UUIDs, and images have been cloned with their SSH keys; only both together make it the same host.
func (r *Reconciler) duplicates(ctx context.Context, lh *infrav1.LibvirtHost) ([]infrav1.LibvirtHost, error) {
	if lh.Status.SystemUUID == "" || lh.Status.HostKeyFingerprint == "" {
		return nil, nil
	}
	all := &infrav1.LibvirtHostList{}
	if err := r.Client.List(ctx, all, client.MatchingFields{index.HostBySystemUUID: lh.Status.SystemUUID}); err != nil {
		return nil, fmt.Errorf("listing the hosts with the same system UUID: %w", err)
	}
	var others []infrav1.LibvirtHost
	for i := range all.Items {
		other := all.Items[i]
		if client.ObjectKeyFromObject(&other) != client.ObjectKeyFromObject(lh) && other.Status.HostKeyFingerprint == lh.Status.HostKeyFingerprint {
			others = append(others, other)
		}
	}
	return others, nil
}

// older orders any two objects, so that exactly one of a set of duplicates is usable.
func older(a, b *infrav1.LibvirtHost) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	if a.Namespace != b.Namespace {
		return a.Namespace < b.Namespace
	}
	return a.Name < b.Name
}

// toDuplicates wakes the objects that were refused because of one that is gone now.
func (r *Reconciler) toDuplicates(ctx context.Context, o client.Object) []reconcile.Request {
	lh, ok := o.(*infrav1.LibvirtHost)
	if !ok {
		return nil
	}
	others, err := r.duplicates(ctx, lh)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Looking for duplicates of a deleted host failed", "LibvirtHost", client.ObjectKeyFromObject(o))
		return nil
	}
	var requests []reconcile.Request
	for i := range others {
		if conditions.GetReason(&others[i], infrav1.HostReadyCondition) == infrav1.DuplicateHostReason {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&others[i])})
		}
	}
	return requests
}
