// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/hostsetup"
)

// maxProblemRetry is the longest time until it is tried again to begin a run.
const maxProblemRetry = time.Minute

func asBackendError(err error) (*ansible.Error, bool) { return errors.AsType[*ansible.Error](err) }

// backendReason is the reason of a condition for what a backend could not do.
func backendReason(reason ansible.Reason) string {
	switch reason {
	case ansible.Overloaded:
		return infrav1.BootstrapQueuedReason
	case ansible.Rejected:
		return infrav1.RunRejectedReason
	case ansible.UnknownRun:
		return infrav1.BootstrapLostReason
	}
	return infrav1.RunnerUnavailableReason
}

// ref finds the recorded run at its backend.
func ref(run *infrav1.BootstrapRun) ansible.Ref { return ansible.Ref{Key: run.Key, ID: run.ID} }

// backendOf is who carries the recorded run out, whatever spec says meanwhile.
func (p *pass) backendOf(ctx context.Context, run *infrav1.BootstrapRun) (ansible.Backend, error) {
	lh := p.lh.DeepCopy()
	if lh.Spec.Bootstrap == nil {
		lh.Spec.Bootstrap = &infrav1.HostBootstrap{}
	}
	lh.Spec.Bootstrap.Backend = run.Backend
	return p.Runners.Backend(ctx, lh)
}

func (p *pass) run() *infrav1.BootstrapRun { return p.lh.Status.Bootstrap.Run }

// compares says whether the recorded run is a check.
func (p *pass) compares() bool { return p.run().Mode == infrav1.BootstrapCheck }

// begin records that a run is to be, and only then asks for it.
func (p *pass) begin(ctx context.Context, action hostsetup.Action) error {
	if _, err := p.Runners.Backend(ctx, p.lh); err != nil {
		return p.problem(ctx, action.Check, err)
	}
	target, fingerprint, err := p.Runners.Reach(ctx, p.lh)
	if err != nil {
		return p.problem(ctx, action.Check, err)
	}
	pin(p.lh, fingerprint)
	run := hostsetup.NewRun(p.view, action)
	if p.lh.Status.Bootstrap == nil {
		p.lh.Status.Bootstrap = &infrav1.HostBootstrapStatus{}
	}
	st := p.lh.Status.Bootstrap
	st.Run, st.CheckRequest = run, hostsetup.CheckRequest(p.lh)
	if !action.Check && st.TouchedAt == nil {
		st.TouchedAt = run.SubmittedAt.DeepCopy()
	}
	hostsetup.Conclude(p.lh)
	if err := p.save(ctx); err != nil {
		return err
	}
	return p.submit(ctx, target)
}

// submit asks for the recorded run. Where it was asked for already, the backend knows by the key.
func (p *pass) submit(ctx context.Context, target ansible.Host) error {
	run := p.run()
	backend, err := p.backendOf(ctx, run)
	if err != nil {
		return p.problem(ctx, p.compares(), err)
	}
	if target.Name == "" {
		if target, _, err = p.Runners.Reach(ctx, p.lh); err != nil {
			return p.problem(ctx, p.compares(), err)
		}
	}
	found, err := backend.Submit(ctx, p.view.Request(run, target, p.variables))
	switch {
	case err != nil && ansible.ReasonOf(err) == ansible.Rejected:
		return p.end(ctx, ansible.Status{Phase: ansible.Phase(infrav1.RunRejected), Message: err.Error()})
	case err != nil:
		return p.problem(ctx, p.compares(), asError(err))
	}
	ctrl.LoggerFrom(ctx).Info("Submitted a run", "playbook", run.Playbook, "mode", run.Mode, "key", run.Key, "attempt", run.Attempt)
	run.ID, run.Phase = found.ID, infrav1.RunPhase(ansible.Queued)
	hostsetup.Conclude(p.lh)
	if err := p.save(ctx); err != nil {
		return err
	}
	return p.follow(ctx)
}

// asError gives errors of the network, which a backend should have classified, the reason that they have.
func asError(err error) error {
	if said, ok := asBackendError(err); ok {
		return said
	}
	return &ansible.Error{Reason: ansible.Unavailable, Message: err.Error()}
}

// follow takes over what is known of the recorded run.
func (p *pass) follow(ctx context.Context) error {
	run := p.run()
	backend, err := p.backendOf(ctx, run)
	if err != nil {
		return p.problem(ctx, p.compares(), err)
	}
	said, known := p.follower.look(p.lh, backend, ref(run))
	p.after = followPoll
	switch {
	case !known:
		return nil
	case said.lost:
		return p.end(ctx, ansible.Status{Phase: ansible.Lost, Message: "who was to run the playbook has no record of it; it is begun again"})
	case said.err != nil:
		return p.problem(ctx, p.compares(), asError(said.err))
	case said.status.Phase.Ended():
		return p.end(ctx, said.status)
	}
	hostsetup.Note(run, said.status, hostsetup.HostName(p.lh))
	hostsetup.Conclude(p.lh)
	return p.save(ctx)
}

// end records how the run has ended.
func (p *pass) end(ctx context.Context, said ansible.Status) error {
	run := p.run()
	hostsetup.End(p.lh.Status.Bootstrap, said, hostsetup.HostName(p.lh), metav1.NewTime(p.now()), p.secrets(ctx)...)
	hostsetup.Conclude(p.lh)
	if err := p.save(ctx); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Run has ended", "playbook", run.Playbook, "key", run.Key, "phase", run.Phase, "failedTask", run.FailedTask)
	// The next step is decided with a fresh look at everything.
	p.after = soon
	return p.follower.forget(ctx, run.Key)
}

// secrets are what must not be in a text that is shown.
func (p *pass) secrets(ctx context.Context) []string {
	b := p.lh.Spec.Bootstrap
	if b == nil || b.SecretRef.Name == "" {
		return nil
	}
	secret := &corev1.Secret{}
	if p.APIReader.Get(ctx, client.ObjectKey{Namespace: p.lh.Namespace, Name: b.SecretRef.Name}, secret) != nil {
		return nil
	}
	return []string{string(secret.Data[infrav1.BecomePasswordSecretKey])}
}

// cancel ends the recorded run, and waits for its end where the object is deleted.
func (p *pass) cancel(ctx context.Context) error {
	run := p.run()
	said, err := p.tryCancel(ctx, run)
	switch {
	case p.lh.DeletionTimestamp.IsZero() && p.lh.Spec.Bootstrap == nil:
		// Whatever becomes of the run, nobody wants to know any more.
		if err := p.follower.forget(ctx, run.Key); err != nil {
			return err
		}
		return p.release(ctx)
	case err != nil && hostsetup.MayGiveUpCanceling(p.lh, p.now()):
		p.Recorder.Eventf(p.lh, nil, corev1.EventTypeWarning, infrav1.RunnerUnavailableReason, "Bootstrapping",
			"Run %s could not be ended and may go on: %s", run.Key, err)
		return p.end(ctx, ansible.Status{Phase: ansible.Lost, Message: "it could not be ended: " + err.Error()})
	case err != nil:
		return p.problem(ctx, p.compares(), asError(err))
	case said.Phase.Ended():
		return p.end(ctx, said)
	}
	p.after = cancelPoll
	return nil
}

// tryCancel cancels a run and returns how far its end is.
func (p *pass) tryCancel(ctx context.Context, run *infrav1.BootstrapRun) (ansible.Status, error) {
	gone := ansible.Status{Phase: ansible.Canceled, Message: "who was to run the playbook has no record of it"}
	backend, err := p.backendOf(ctx, run)
	if err != nil {
		return ansible.Status{}, err
	}
	if err := backend.Cancel(ctx, ref(run)); err != nil {
		if ansible.ReasonOf(err) == ansible.UnknownRun {
			return gone, nil
		}
		return ansible.Status{}, err
	}
	said, err := backend.Status(ctx, ref(run))
	if err != nil && ansible.ReasonOf(err) == ansible.UnknownRun {
		return gone, nil
	}
	return said, err
}
