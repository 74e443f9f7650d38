// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// phaseClaim makes the host this machine's alone. The claim is written with the resource version that was read, so that of two
// machines that find the host free, whatever their caches say, one gets it. A machine that has run only renews a claim that
// was lost with the host's status: it creates nothing any more.
func (r *Reconciler) phaseClaim(ctx context.Context, s *scope) error {
	holder, err := r.claim(ctx, s.machine, s.lhost)
	if err != nil {
		return err
	}
	if holder == nil || s.provisioned() {
		return nil
	}
	s.hostProblem = holder
	return errStop
}

// claim claims the host for the machine, unless another one has it: then the Blocker says which.
func (r *Reconciler) claim(ctx context.Context, lm *infrav1.LibvirtMachine, cached *infrav1.LibvirtHost) (*Blocker, error) {
	if holds(lm, cached) {
		// Nobody else takes a claim away from a machine that exists, so that even an old copy is right about this.
		return nil, nil
	}
	lh, key := cached, client.ObjectKeyFromObject(cached)
	var taken *Blocker
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var err error
		if taken, err = r.takeClaim(ctx, lm, lh); !apierrors.IsConflict(err) {
			return err
		}
		lh = &infrav1.LibvirtHost{}
		if getErr := r.APIReader.Get(ctx, key, lh); getErr != nil {
			return getErr
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claiming LibvirtHost %s: %w", key, err)
	}
	return taken, nil
}

// takeClaim writes the claim over a host that has none, or one of a machine that is gone. It fails with a conflict when lh is
// not the host's present state.
func (r *Reconciler) takeClaim(ctx context.Context, lm *infrav1.LibvirtMachine, lh *infrav1.LibvirtHost) (*Blocker, error) {
	switch {
	case holds(lm, lh):
		return nil, nil
	case !lh.DeletionTimestamp.IsZero():
		return &Blocker{infrav1.HostNotReadyReason, fmt.Sprintf("LibvirtHost %s is being deleted; delete the machine and name another host", lh.Name)}, nil
	case len(lh.Status.Leftovers) > 0:
		left := lh.Status.Leftovers[0]
		return &Blocker{infrav1.HostHasLeftoversReason, fmt.Sprintf(
			"LibvirtHost %s may still have domain %s of LibvirtMachine %s, which was abandoned; this machine starts when that is removed%s",
			lh.Name, left.Domain, left.Machine, because(left.Message))}, nil
	case lh.Status.MachineRef != nil:
		if blocker, err := r.holder(ctx, lh); blocker != nil || err != nil {
			return blocker, err
		}
	}
	base := lh.DeepCopy()
	claimed := lh.DeepCopy()
	claimed.Status.MachineRef = &infrav1.MachineClaim{Name: lm.Name, UID: lm.UID}
	return nil, r.guarded(writeClaim, func() error {
		return r.Client.Status().Patch(ctx, claimed, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	})
}

func because(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

// holder describes the machine that has the host, or returns nil when that machine is gone. It asks the API server: a
// cache may not know yet of a machine that is new, nor of one that is gone.
func (r *Reconciler) holder(ctx context.Context, lh *infrav1.LibvirtHost) (*Blocker, error) {
	ref := lh.Status.MachineRef
	other := &infrav1.LibvirtMachine{}
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: lh.Namespace, Name: ref.Name}, other)
	if apierrors.IsNotFound(err) || err == nil && other.UID != ref.UID {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading LibvirtMachine %s, which has claimed the host: %w", ref.Name, err)
	}
	if !other.DeletionTimestamp.IsZero() {
		return &Blocker{infrav1.HostInUseReason, fmt.Sprintf(
			"LibvirtHost %s is still used by LibvirtMachine %s, which is being deleted; this machine starts when that one is gone", lh.Name, other.Name)}, nil
	}
	return &Blocker{infrav1.HostInUseReason, fmt.Sprintf(
		"LibvirtHost %s is used by LibvirtMachine %s; delete that one, or delete this machine and name another host", lh.Name, other.Name)}, nil
}

// release gives the host back. It is called when nothing of the machine is left on it.
func (r *Reconciler) release(ctx context.Context, lm *infrav1.LibvirtMachine) error {
	key := client.ObjectKey{Namespace: lm.Namespace, Name: lm.Spec.HostRef.Name}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		lh := &infrav1.LibvirtHost{}
		// Not from the cache: it may not know of the claim yet, which would then stay.
		if err := r.APIReader.Get(ctx, key, lh); err != nil {
			return client.IgnoreNotFound(err)
		}
		if !holds(lm, lh) {
			return nil
		}
		base := lh.DeepCopy()
		lh.Status.MachineRef = nil
		return r.guarded(writeRelease, func() error {
			return client.IgnoreNotFound(r.Client.Status().Patch(ctx, lh, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})))
		})
	})
	if err != nil {
		return fmt.Errorf("releasing LibvirtHost %s: %w", key, err)
	}
	return nil
}

func holds(lm *infrav1.LibvirtMachine, lh *infrav1.LibvirtHost) bool {
	return lh.Status.MachineRef != nil && lh.Status.MachineRef.UID == lm.UID
}
