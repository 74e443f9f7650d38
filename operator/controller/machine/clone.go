// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"time"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// startClone has the root disk copied by a job, which wakes the reconciler when it has ended.
func (r *Reconciler) startClone(s *scope, step Step) {
	host := s.host
	r.Jobs.Start(s.desired.UUID, s.machine.DeepCopy(), func(ctx context.Context) error {
		if err := r.guarded(string(step.Kind), func() error {
			return host.CloneVolume(ctx, step.Pool, step.XML, step.FromPool, step.FromVolume)
		}); err != nil {
			return &StepError{Step: step, Err: err}
		}
		return nil
	})
	s.domainProblem = cloning(step.FromVolume, time.Now())
}

// noteClone tells what has become of a copy. While it goes on, the host is left alone.
func (r *Reconciler) noteClone(ctx context.Context, s *scope, done *Progress) error {
	state, known := r.Jobs.State(s.desired.UUID)
	switch {
	case !known || s.desired.Provisioned:
		return nil
	case state.Running:
		s.domainProblem = cloning(s.desired.BaseImage, state.Started)
		return errStop
	case state.Err != nil:
		// Forgotten, so that the next reconcile, after a pause, begins anew.
		s.domainProblem = explain(state.Err, infrav1.ProvisioningFailedReason)
		if err := r.Jobs.Forget(ctx, s.desired.UUID); err != nil {
			return err
		}
		return errStop
	}
	done.Clone = CloneDone
	return nil
}

func cloning(image string, since time.Time) *Blocker {
	return &Blocker{infrav1.CloningDiskReason, fmt.Sprintf("the root disk is being copied from %s since %s", image, since.UTC().Format(time.RFC3339))}
}
