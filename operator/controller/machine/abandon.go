// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/domain"
)

// abandonAt returns whether a machine whose cleanup has stalled may be abandoned, and if not yet, when; zero for never.
func (s *scope) abandonAt(now time.Time) (bool, time.Time) {
	if _, told := s.machine.Annotations[infrav1.AbandonAnnotation]; told {
		return true, time.Time{}
	}
	limit := s.machine.Spec.Deletion.AbandonAfterSeconds
	if limit == nil {
		return false, time.Time{}
	}
	since := now
	if stalled := conditions.Get(s.before, infrav1.CleanupStalledCondition); stalled != nil && stalled.Status == metav1.ConditionTrue {
		since = stalled.LastTransitionTime.Time
	}
	due := since.Add(time.Duration(*limit) * time.Second)
	return !now.Before(due), due
}

// abandon gives the machine up: its Node is deleted, and what it may have left is recorded on its host, in the same write that gives the
// host back. It returns what stands in the way.
func (r *Reconciler) abandon(ctx context.Context, s *scope) (*Blocker, error) {
	if problem, err := r.deleteNodes(ctx, s); problem != nil || err != nil {
		return problem, err
	}
	key := client.ObjectKey{Namespace: s.machine.Namespace, Name: s.machine.Spec.HostRef.Name}
	var full bool
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		lh := &infrav1.LibvirtHost{}
		if err := r.APIReader.Get(ctx, key, lh); err != nil {
			return client.IgnoreNotFound(err) // Nobody is left who could tell.
		}
		base := lh.DeepCopy()
		if full = !addLeftover(lh, leftoverOf(s.machine)); full {
			return nil
		}
		if holds(s.machine, lh) {
			lh.Status.MachineRef = nil
		}
		return r.Client.Status().Patch(ctx, lh, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	})
	if err != nil {
		return nil, fmt.Errorf("recording on LibvirtHost %s what the machine may have left: %w", key, err)
	}
	if full {
		return &Blocker{infrav1.CleanupFailedReason, fmt.Sprintf(
			"LibvirtHost %s has %d abandoned machines already in status.leftovers; have it come back, or delete it", key, infrav1.MaxLeftovers)}, nil
	}
	return nil, nil
}

// addLeftover returns false when the host cannot remember more.
func addLeftover(lh *infrav1.LibvirtHost, leftover infrav1.HostLeftover) bool {
	if slices.ContainsFunc(lh.Status.Leftovers, func(l infrav1.HostLeftover) bool { return l.MachineUID == leftover.MachineUID }) {
		return true
	}
	if len(lh.Status.Leftovers) >= infrav1.MaxLeftovers {
		return false
	}
	lh.Status.Leftovers = append(lh.Status.Leftovers, leftover)
	return true
}

// leftoverOf is what a machine may have on its host.
func leftoverOf(lm *infrav1.LibvirtMachine) infrav1.HostLeftover {
	d := identityOf(lm)
	leftover := infrav1.HostLeftover{
		Machine: lm.Name, MachineUID: string(lm.UID), Domain: d.Name, AbandonedAt: metav1.Now(), Seen: new(d.Defined), EphemeralPool: new(d.Ephemeral),
	}
	for _, ref := range d.volumes() {
		leftover.Volumes = append(leftover.Volumes, infrav1.HostVolume{Pool: ref.Pool, Name: ref.Name})
	}
	return leftover
}

// identityOfLeftover is what a deletion of it needs.
func identityOfLeftover(namespace string, l infrav1.HostLeftover) Desired {
	d := Desired{
		Name: l.Domain, UUID: domain.UUID(l.MachineUID), PoolUUID: domain.PoolUUID(l.MachineUID),
		Owner:   domain.Owner{Namespace: namespace, Name: l.Machine, UID: l.MachineUID},
		Defined: ptr.Deref(l.Seen, false), Ephemeral: ptr.Deref(l.EphemeralPool, false),
	}
	for i, v := range l.Volumes {
		if i == 0 {
			d.RootPool, d.RootVolume = v.Pool, v.Name
			continue
		}
		d.DataDisks = append(d.DataDisks, DataDisk{Pool: v.Pool, Volume: v.Name})
	}
	return d
}

// announceAbandoned tells what was given up.
func (r *Reconciler) announceAbandoned(s *scope) {
	r.Recorder.Eventf(s.machine, nil, corev1.EventTypeWarning, "Abandoned", "Deleting",
		"the machine is given up; domain %s may still run on host %s, and is removed when the host can be reached again: %s",
		s.machine.Status.NodeName, s.machine.Spec.HostRef.Name, s.cleanupProblem.Message)
}
