// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/wake"
)

// setupCollector registers the reconciler of hosts with leftovers.
func (r *Reconciler) setupCollector(mgr ctrl.Manager, options controller.Options) error {
	log := mgr.GetLogger().WithValues("controller", "leftovers")
	return ctrl.NewControllerManagedBy(mgr).
		Named("leftovers").
		For(&infrav1.LibvirtHost{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue),
			predicate.NewPredicateFuncs(func(o client.Object) bool {
				lh, ok := o.(*infrav1.LibvirtHost)
				return ok && len(lh.Status.Leftovers) > 0
			}),
		)).
		WithOptions(wake.Options(options)).
		Complete(reconcile.Func(r.collect))
}

// collect removes what abandoned machines have left on a host that can be reached again.
func (r *Reconciler) collect(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	lh := &infrav1.LibvirtHost{}
	if err := r.APIReader.Get(ctx, req.NamespacedName, lh); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if len(lh.Status.Leftovers) == 0 || annotations.HasPaused(lh) || !conditions.IsTrue(lh, infrav1.HostReadyCondition) {
		// The host's reconciler goes on probing it, and its becoming ready wakes this one.
		return ctrl.Result{}, nil
	}
	again := time.Duration(0)
	for _, leftover := range slices.Clone(lh.Status.Leftovers) {
		problem, err := r.removeLeftover(ctx, lh, leftover)
		if err != nil {
			return ctrl.Result{}, err
		}
		if problem != nil {
			// A host that is away is ready until it is probed.
			failing := &metav1.Condition{LastTransitionTime: leftover.AbandonedAt}
			again = wake.Jitter(wake.RetryAfter(failing, time.Now(), maxRetry))
		}
		if err := r.noteLeftover(ctx, req.NamespacedName, leftover, problem); err != nil {
			return ctrl.Result{}, err
		}
		if problem == nil {
			r.Recorder.Eventf(lh, nil, corev1.EventTypeNormal, "LeftoverRemoved", "Collecting",
				"nothing of the abandoned LibvirtMachine %s (domain %s) is left on the host", leftover.Machine, leftover.Domain)
		}
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// removeLeftover removes everything of an abandoned machine from its host, and returns what stands in the way.
func (r *Reconciler) removeLeftover(ctx context.Context, lh *infrav1.LibvirtHost, leftover infrav1.HostLeftover) (*Blocker, error) {
	lm := &infrav1.LibvirtMachine{}
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: lh.Namespace, Name: leftover.Machine}, lm)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if !apierrors.IsNotFound(err) && string(lm.UID) == leftover.MachineUID {
		return &Blocker{infrav1.DeletingReason, "the LibvirtMachine still exists"}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.HostTimeout)
	defer cancel()
	s := &scope{machine: &infrav1.LibvirtMachine{}, lhost: lh, desired: identityOfLeftover(lh.Namespace, leftover)}
	if err := r.connect(ctx, s); err != nil {
		return explain(err, infrav1.CleanupFailedReason), nil
	}
	return r.removeAll(ctx, s)
}

// noteLeftover forgets a leftover, or keeps why it is still there.
func (r *Reconciler) noteLeftover(ctx context.Context, key client.ObjectKey, leftover infrav1.HostLeftover, problem *Blocker) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		lh := &infrav1.LibvirtHost{}
		if err := r.APIReader.Get(ctx, key, lh); err != nil {
			return client.IgnoreNotFound(err)
		}
		base := lh.DeepCopy()
		at := slices.IndexFunc(lh.Status.Leftovers, func(l infrav1.HostLeftover) bool { return l.MachineUID == leftover.MachineUID })
		switch {
		case at < 0:
			return nil
		case problem == nil:
			lh.Status.Leftovers = slices.Delete(lh.Status.Leftovers, at, at+1)
		default:
			lh.Status.Leftovers[at].Message = cut(problem.Message)
		}
		return client.IgnoreNotFound(r.Client.Status().Patch(ctx, lh, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})))
	})
	if err != nil {
		return fmt.Errorf("noting what is left of LibvirtMachine %s: %w", leftover.Machine, err)
	}
	return nil
}

// maxLeftoverMessage is the limit of the API, in characters.
const maxLeftoverMessage = 1024

func cut(message string) string {
	runes := []rune(message)
	return string(runes[:min(len(runes), maxLeftoverMessage)])
}
