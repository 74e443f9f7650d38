// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/caplv/caplv/operator/hosts"
)

// StepError says which step failed. Its cause can be given to hosts.Explain.
type StepError struct {
	Step Step
	Err  error
}

func (e *StepError) Error() string { return fmt.Sprintf("%s: %v", e.Step.Kind, e.Err) }

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }

// apply does the steps of a plan in order and stops at the first failure, which it returns as a *StepError. It notes in
// done what no observation will show.
func (r *Reconciler) apply(ctx context.Context, host hosts.Host, d Desired, steps []Step, done *Progress) error {
	log := ctrl.LoggerFrom(ctx)
	for _, step := range steps {
		log.Info("Applying step", "step", step.Kind, "domain", d.Name, "pool", step.Pool, "volume", step.Volume)
		if err := r.guarded(string(step.Kind), func() error { return applyStep(ctx, host, d, step) }); err != nil {
			return &StepError{Step: step, Err: err}
		}
		switch step.Kind {
		case StepRefreshPool:
			if done.Refreshed == nil {
				done.Refreshed = map[string]bool{}
			}
			done.Refreshed[step.Pool] = true
		case StepStageDirectory:
			done.Staged = true
		case StepRemoveDirectory:
			done.DirectoryRemoved = true
		}
	}
	return nil
}

func applyStep(ctx context.Context, host hosts.Host, d Desired, step Step) error {
	defer timed(string(step.Kind))()
	switch step.Kind {
	case StepRefreshPool:
		return host.RefreshPool(ctx, step.Pool)
	case StepStartPool:
		return host.StartPool(ctx, step.Pool)
	case StepDefineDomain:
		return host.DefineDomain(ctx, step.XML)
	case StepStageDirectory:
		_, err := host.Stage(ctx, *step.Stage)
		return err
	case StepDefinePool:
		return host.DefinePool(ctx, step.XML)
	case StepCreateVolume:
		return host.CreateVolume(ctx, step.Pool, step.XML)
	case StepResizeVolume:
		return host.ResizeVolume(ctx, step.Pool, step.Volume, step.Bytes)
	case StepMarkCloned:
		return host.DefineDomain(ctx, step.XML)
	case StepStartDomain:
		return host.StartDomain(ctx, d.Name)
	case StepResumeDomain:
		return host.ResumeDomain(ctx, d.Name)
	case StepShutdownDomain:
		return host.ShutdownDomain(ctx, d.Name)
	case StepDestroyDomain:
		return host.DestroyDomain(ctx, d.Name)
	case StepDeleteVolume:
		return host.DeleteVolume(ctx, step.Pool, step.Volume)
	case StepDestroyPool:
		return host.DestroyPool(ctx, step.Pool)
	case StepUndefinePool:
		return host.UndefinePool(ctx, step.Pool)
	case StepRemoveDirectory:
		return host.RemoveDirectory(ctx, d.Name)
	case StepUndefineDomain:
		return host.UndefineDomain(ctx, d.Name)
	default:
		return fmt.Errorf("no step is called %q", step.Kind)
	}
}
