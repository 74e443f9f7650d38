// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/csr"
)

// loadAge is how old a count of the pending requests may be until one is about to be approved. It bounds the work when very many
// arrive at once.
const loadAge = time.Second

// loadCounter remembers the last count.
type loadCounter struct {
	mu   sync.Mutex
	at   time.Time
	load csr.Load
}

// countLoad counts the pending requests, unless that was done less than age ago.
func (r *Reconciler) countLoad(ctx context.Context, age time.Duration) (csr.Load, error) {
	r.load.mu.Lock()
	defer r.load.mu.Unlock()
	now := time.Now()
	if now.Sub(r.load.at) < age {
		return r.load.load, nil
	}
	created, err := r.creations(ctx)
	if err != nil {
		return csr.Load{}, err
	}
	machines, nodes := &infrav1.LibvirtMachineList{}, &corev1.NodeList{}
	if err := r.Client.List(ctx, machines, client.UnsafeDisableDeepCopy); err != nil {
		return csr.Load{}, err
	}
	if err := r.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return csr.Load{}, err
	}
	r.load.at, r.load.load = now, csr.NewLoad(created, len(machines.Items), len(nodes.Items), now)
	pendingRequests.Set(float64(r.load.load.Pending))
	pendingLimit.Set(float64(r.load.load.Limit))
	return r.load.load, nil
}
