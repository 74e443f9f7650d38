// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/wake"
	"github.com/caplv/caplv/operator/virsh"
)

// reconcileDelete removes the machine from its host and then the finalizer. It needs neither Machine nor Cluster nor
// bootstrap data, which may be gone. It stops only for a host that cannot be reached or refuses.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *scope) (ctrl.Result, error) {
	r.unwatch(client.ObjectKeyFromObject(s.machine))
	if !controllerutil.ContainsFinalizer(s.machine, infrav1.MachineFinalizer) {
		return ctrl.Result{}, nil
	}
	touched, err := r.hostTouched(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if touched {
		if after, err := r.leave(ctx, s); err != nil || after > 0 {
			return ctrl.Result{RequeueAfter: after}, err
		}
		problem, err := r.cleanUp(ctx, s)
		if err != nil {
			return ctrl.Result{}, err
		}
		if s.shutdown.waiting {
			return ctrl.Result{RequeueAfter: shutdownPoll}, nil
		}
		if problem == nil {
			// The Node goes after the domain: a kubelet that still ran would register it again.
			problem, err = r.deleteNodes(ctx, s)
			if err != nil {
				return ctrl.Result{}, err
			}
		}
		if problem != nil {
			s.cleanupProblem = problem
			ctrl.LoggerFrom(ctx).Info("Cleanup on the host has stalled", "reason", problem.Reason, "message", problem.Message)
			if after, err := r.stalled(ctx, s); err != nil || !s.abandoned {
				return ctrl.Result{RequeueAfter: after}, err
			}
		}
	}
	if s.lhost != nil && !s.abandoned {
		r.collectBootArtifacts(ctx, s.lhost)
	}
	if err := r.release(ctx, s.machine); err != nil {
		return ctrl.Result{}, err
	}
	s.cleanedUp = true
	controllerutil.RemoveFinalizer(s.machine, infrav1.MachineFinalizer)
	return ctrl.Result{}, nil
}

// stalled abandons a machine whose cleanup does not proceed, if it may be; otherwise it returns when to try again.
func (r *Reconciler) stalled(ctx context.Context, s *scope) (time.Duration, error) {
	now := time.Now()
	after := wake.Jitter(wake.RetryAfter(conditions.Get(s.before, infrav1.CleanupStalledCondition), now, maxRetry))
	due, at := s.abandonAt(now)
	if !due {
		if !at.IsZero() {
			after = min(after, max(at.Sub(now), time.Millisecond))
		}
		return after, nil
	}
	problem, err := r.abandon(ctx, s)
	if err != nil || problem == nil {
		s.abandoned = err == nil
		return 0, err
	}
	s.cleanupProblem = problem
	return after, nil
}

// hostTouched says whether anything can have been created on the host. The cache may lag behind the status write that
// precedes the first step, so a missing identity is confirmed by the API server.
func (r *Reconciler) hostTouched(ctx context.Context, s *scope) (bool, error) {
	if s.machine.Status.DomainUUID != "" {
		return true, nil
	}
	live := &infrav1.LibvirtMachine{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.machine), live); err != nil {
		return false, err
	}
	s.machine.Status.NodeName = live.Status.NodeName
	s.machine.Status.DomainUUID = live.Status.DomainUUID
	return live.Status.DomainUUID != "", nil
}

// lostPool says whether a step failed because a pool's directory is gone, and notes it: what was in it is gone as well, so it
// does not hold up a deletion.
func lostPool(err error, done *Progress) bool {
	var failed *StepError
	if !errors.As(err, &failed) || failed.Step.Kind != StepStartPool || virsh.ReasonOf(err) != virsh.FileNotFound {
		return false
	}
	if done.Lost == nil {
		done.Lost = map[string]bool{}
	}
	done.Lost[failed.Step.Pool] = true
	return true
}

// lostVolume refreshes the pool of a volume that could not be deleted, once, and says whether it did: a volume whose file was removed
// without libvirt's doing is listed until then, and deleting it fails.
func (r *Reconciler) lostVolume(ctx context.Context, s *scope, err error, done *Progress) bool {
	var failed *StepError
	if !errors.As(err, &failed) || failed.Step.Kind != StepDeleteVolume || done.Refreshed[failed.Step.Pool] {
		return false
	}
	return r.apply(ctx, s.host, s.desired, []Step{{Kind: StepRefreshPool, Pool: failed.Step.Pool}}, done) == nil
}

// cleanUp removes everything of the machine from its host and confirms that it is gone. It returns what stands in the
// way.
func (r *Reconciler) cleanUp(ctx context.Context, s *scope) (*Blocker, error) {
	lh := &infrav1.LibvirtHost{}
	key := client.ObjectKey{Namespace: s.machine.Namespace, Name: s.machine.Spec.HostRef.Name}
	if err := r.Client.Get(ctx, key, lh); err != nil {
		if !apierrors.IsNotFound(err) {
			return nil, err
		}
		return &Blocker{infrav1.HostNotFoundReason, fmt.Sprintf(
			"LibvirtHost %s does not exist, so domain %s cannot be removed from it; create it again, or remove the domain by hand and set the annotation %s",
			key, s.machine.Status.NodeName, infrav1.AbandonAnnotation)}, nil
	}
	s.lhost = lh
	s.desired = identityOf(s.machine)

	ctx, cancel := context.WithTimeout(ctx, r.HostTimeout)
	defer cancel()
	if err := r.Jobs.Forget(ctx, s.desired.UUID); err != nil {
		return &Blocker{infrav1.CleanupFailedReason, "the copy of the root disk cannot be stopped: " + err.Error()}, nil
	}
	if err := r.confirmShutdown(ctx, s); err != nil {
		return nil, err
	}
	if err := r.connect(ctx, s); err != nil {
		return explain(err, infrav1.CleanupFailedReason), nil
	}
	return r.removeAll(ctx, s)
}

// identityOf is what the deletion of a machine that has recorded its identity needs.
func identityOf(lm *infrav1.LibvirtMachine) Desired {
	d := identity(lm, lm.Status.NodeName)
	d.Defined = ptr.Deref(lm.Status.Initialization.Provisioned, false) || lm.Status.VCPUs > 0
	return d
}

// removeAll removes what is desired from the host that the scope is connected to.
func (r *Reconciler) removeAll(ctx context.Context, s *scope) (*Blocker, error) {
	var done Progress
	for range maxRounds {
		done.Shutdown = s.shutdownState(time.Now())
		obs, err := s.host.Observe(ctx, s.desired.query())
		if err != nil {
			return explain(err, infrav1.CleanupFailedReason), nil
		}
		if err := s.note(s.desired, obs); err != nil {
			return nil, err
		}
		plan, err := PlanDeletion(s.desired, obs, done)
		if err != nil {
			return nil, err
		}
		if plan.Done() {
			return nil, nil
		}
		if s.shutdown.waiting = plan.Waiting; plan.Waiting {
			return nil, nil
		}
		err = r.apply(ctx, s.host, s.desired, plan.Steps, &done)
		if r.noteShutdown(s, plan.Steps[0], err) || lostPool(err, &done) || r.lostVolume(ctx, s, err, &done) {
			continue
		}
		if err != nil {
			return explain(err, infrav1.CleanupFailedReason), nil
		}
	}
	return &Blocker{infrav1.CleanupFailedReason, fmt.Sprintf("something of the machine was still on the host after %d rounds; trying again", maxRounds)}, nil
}
