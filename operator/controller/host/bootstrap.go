// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/controller/wake"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/hostsetup"
)

const (
	// soon is when to go on after a run has ended, or a write of the status has met another.
	soon = 200 * time.Millisecond
	// cancelPoll is how often it is looked whether a run that was canceled has ended.
	cancelPoll = 2 * time.Second
	// followPoll is a net under the follower, which wakes the reconciler itself.
	followPoll = time.Minute
)

// Runners say who runs playbooks on a host, and how he gets there. Their errors can be given to hosts.Explain.
type Runners interface {
	Backend(ctx context.Context, lh *infrav1.LibvirtHost) (ansible.Backend, error)
	// Reach also returns the fingerprint of the host key that the target has.
	Reach(ctx context.Context, lh *infrav1.LibvirtHost) (target ansible.Host, fingerprint string, err error)
}

// managed says whether the operator sets the host up, or has to end doing so.
func managed(lh *infrav1.LibvirtHost) bool {
	return lh.Spec.Bootstrap != nil || lh.Status.Bootstrap != nil
}

// pass is one look at how far a host is with being set up. Everything that it writes is written with optimistic locking: of two operators that both
// believe to lead, one finds out before it has asked for a run.
type pass struct {
	*Reconciler
	lh *infrav1.LibvirtHost
	// base is the object as the API server has it.
	base *infrav1.LibvirtHost
	view hostsetup.View
	// variables are those of onboard_host, once they are known.
	variables map[string]any
	// after is when to look again, zero for never, and released that nothing of this holds the object.
	after    time.Duration
	released bool
}

// bootstrap brings the host nearer to what spec.bootstrap wants, without waiting for anything that takes longer than a probe.
func (r *Reconciler) bootstrap(ctx context.Context, lh *infrav1.LibvirtHost, inUse bool) (after time.Duration, released bool, err error) {
	if !managed(lh) {
		return 0, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.ProbeTimeout)
	defer cancel()
	p := &pass{Reconciler: r, lh: lh, base: lh.DeepCopy(), view: hostsetup.View{Host: lh, InUse: inUse, Now: r.now()}}
	err = p.step(ctx)
	if apierrors.IsConflict(err) {
		// Somebody else has written, a machine its claim for example. What was decided is decided again.
		return soon, false, nil
	}
	return p.after, p.released, err
}

func (p *pass) step(ctx context.Context) error {
	action, decided := hostsetup.Current(p.view)
	if !decided || action.Step == hostsetup.Submit {
		variables, err := p.desired(ctx, &p.view)
		if err != nil {
			return p.problem(ctx, false, err)
		}
		p.variables = variables
	}
	if !decided {
		action = hostsetup.Next(p.view)
	}
	switch action.Step {
	case hostsetup.Begin:
		return p.begin(ctx, action)
	case hostsetup.Submit:
		return p.submit(ctx, ansible.Host{})
	case hostsetup.Follow:
		return p.follow(ctx)
	case hostsetup.Cancel:
		return p.cancel(ctx)
	case hostsetup.Release:
		return p.release(ctx)
	}
	p.after = action.After
	hostsetup.Conclude(p.lh)
	return p.save(ctx)
}

// release ends everything about setting the host up. A deleted object keeps its status until it is gone.
func (p *pass) release(ctx context.Context) error {
	p.released = true
	if p.lh.Spec.Bootstrap != nil || !p.lh.DeletionTimestamp.IsZero() {
		return nil
	}
	p.lh.Status.Bootstrap = nil
	for _, c := range []string{infrav1.BootstrappedCondition, infrav1.SessionHardenedCondition, infrav1.DriftedCondition} {
		conditions.Delete(p.lh, c)
	}
	return p.save(ctx)
}

// save writes the status if it has changed, and tells in Events what is new in its conditions.
func (p *pass) save(ctx context.Context) error {
	if apiequality.Semantic.DeepEqual(p.base.Status, p.lh.Status) {
		return nil
	}
	if err := p.Client.Status().Patch(ctx, p.lh, client.MergeFromWithOptions(p.base, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	for _, c := range []string{infrav1.BootstrappedCondition, infrav1.DriftedCondition} {
		p.tell(p.lh, conditions.Get(p.base, c), conditions.Get(p.lh, c))
	}
	p.base = p.lh.DeepCopy()
	return nil
}

// goodReasons are those that nobody has to look after.
var goodReasons = map[string]bool{
	infrav1.BootstrapQueuedReason: true, infrav1.BootstrapRunningReason: true, infrav1.BootstrapCheckedReason: true, infrav1.InSyncReason: true,
	infrav1.SessionHardenedReason: true, infrav1.BootstrappedReason: true,
}

// tell emits an Event where status or reason of a condition have changed.
func (r *Reconciler) tell(lh *infrav1.LibvirtHost, before, after *metav1.Condition) {
	if after == nil || before != nil && before.Status == after.Status && before.Reason == after.Reason {
		return
	}
	kind := corev1.EventTypeWarning
	if goodReasons[after.Reason] || after.Reason == infrav1.OffboardingReason && before != nil && before.Reason != infrav1.OffboardingReason {
		kind = corev1.EventTypeNormal
	}
	r.Recorder.Eventf(lh, nil, kind, after.Reason, "Bootstrapping", "%s", after.Message)
}

// problem records why no run can be begun or followed, and when that is tried again. Errors of the API server are returned.
func (p *pass) problem(ctx context.Context, compares bool, err error) error {
	reason, message := hosts.Explain(err, "")
	if said, ok := asBackendError(err); ok {
		reason, message = backendReason(said.Reason), "who runs the playbooks cannot be asked: "+said.Message
	}
	if reason == "" {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Host cannot be set up", "reason", reason, "message", message)
	about := hostsetup.Problem(p.lh, compares, reason, message)
	p.after = wake.Jitter(wake.RetryAfter(conditions.Get(p.lh, about), p.now(), maxProblemRetry))
	return p.save(ctx)
}
