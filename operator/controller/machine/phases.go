// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/wake"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/naming"
)

// errStop ends the phases of a reconcile; the scope says why.
var errStop = errors.New("the machine cannot go on yet")

// phase does one part of a reconcile. It returns errStop when the next ones cannot follow, and any other error to have
// the whole reconcile tried again.
type phase func(context.Context, *scope) error

// reconcileNormal runs the phases.
func (r *Reconciler) reconcileNormal(ctx context.Context, s *scope) (ctrl.Result, error) {
	for _, p := range []phase{
		r.phaseOwners,
		r.phaseHost,
		r.phaseControlPlane,
		r.phaseDesired,
		r.phaseBootstrap,
		r.phaseClaim,
		r.phaseBaseImage,
		r.phaseBootArtifacts,
		r.phaseNodeName,
		r.phaseConverge,
	} {
		err := p(ctx, s)
		if errors.Is(err, errStop) {
			break
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	r.watch(s)
	return ctrl.Result{RequeueAfter: s.requeueAfter(time.Now())}, nil
}

// requeueAfter is when to look again by itself: soon after a failure, seldom while all is well, and not at all while
// only a watched object can change anything.
func (s *scope) requeueAfter(now time.Time) time.Duration {
	switch {
	case s.owner == nil || s.cluster == nil:
		return 0
	case s.running:
		return wake.Jitter(pollInterval)
	case !s.recoverAt.IsZero():
		return max(s.recoverAt.Sub(now), time.Millisecond)
	case s.imageProblem != nil && s.imageProblem.Reason == infrav1.BaseImageStagingReason:
		return stagingPoll
	case s.bootProblem != nil && s.bootProblem.Reason == infrav1.BootArtifactsStagingReason:
		return stagingPoll
	default:
		return wake.Jitter(wake.RetryAfter(conditions.Get(s.before, infrav1.MachineReadyCondition), now, maxRetry))
	}
}

func (s *scope) provisioned() bool {
	return ptr.Deref(s.machine.Status.Initialization.Provisioned, false)
}

// phaseOwners waits for what Cluster API sets before an infrastructure provider may begin.
func (r *Reconciler) phaseOwners(_ context.Context, s *scope) error {
	switch {
	case s.owner == nil:
		s.waiting = &Blocker{infrav1.WaitingForOwnerMachineReason, "no Machine owns this LibvirtMachine yet; create a Machine whose infrastructureRef names it"}
	case s.cluster == nil:
		s.waiting = &Blocker{infrav1.WaitingForClusterInfrastructureReason, fmt.Sprintf("Cluster %q of the Machine does not exist", s.owner.Spec.ClusterName)}
	case !s.provisioned() && !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false):
		s.waiting = &Blocker{infrav1.WaitingForClusterInfrastructureReason,
			fmt.Sprintf("the infrastructure of Cluster %q is not provisioned yet; see its LibvirtCluster", s.cluster.Name)}
	default:
		return nil
	}
	return errStop
}

// phaseControlPlane holds back a new machine while the control plane cannot be reached: its guest could not join.
func (r *Reconciler) phaseControlPlane(ctx context.Context, s *scope) error {
	ref := s.cluster.Spec.InfrastructureRef
	if s.provisioned() || ref.Kind != "LibvirtCluster" || ref.APIGroup != infrav1.GroupVersion.Group {
		return nil
	}
	lc := &infrav1.LibvirtCluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: ref.Name}, lc); err != nil {
		if !apierrors.IsNotFound(err) {
			return err
		}
		s.waiting = &Blocker{infrav1.WaitingForClusterInfrastructureReason, fmt.Sprintf("LibvirtCluster %q does not exist", ref.Name)}
		return errStop
	}
	s.lcluster = lc
	if conditions.IsTrue(lc, infrav1.ClusterReadyCondition) {
		return nil
	}
	s.waiting = &Blocker{infrav1.WaitingForClusterInfrastructureReason,
		fmt.Sprintf("LibvirtCluster %q is not ready: %s", lc.Name, conditions.GetMessage(lc, infrav1.ClusterReadyCondition))}
	if conditions.GetReason(lc, infrav1.ClusterReadyCondition) == infrav1.ControlPlaneUnreachableReason {
		s.waiting.Reason = infrav1.ControlPlaneUnreachableReason
	}
	return errStop
}

// stillAnswers are reasons for which a host is refused to new machines, and can tell all the same of one that runs on it.
var stillAnswers = []string{
	infrav1.HostDeletingReason, infrav1.DuplicateHostReason, infrav1.SessionModeMisconfiguredReason,
	infrav1.HelperUnavailableReason, infrav1.VirtTypeUnsupportedReason,
}

// phaseHost finds the host and waits until it is usable.
func (r *Reconciler) phaseHost(ctx context.Context, s *scope) error {
	s.hostChecked = true
	lh := &infrav1.LibvirtHost{}
	key := client.ObjectKey{Namespace: s.machine.Namespace, Name: s.machine.Spec.HostRef.Name}
	if err := r.Client.Get(ctx, key, lh); err != nil {
		if !apierrors.IsNotFound(err) {
			return err
		}
		s.hostProblem = &Blocker{infrav1.HostNotFoundReason, fmt.Sprintf("LibvirtHost %s does not exist; create it, or delete the machine and name another host", key)}
		return errStop
	}
	s.lhost = lh
	ready := conditions.Get(lh, infrav1.HostReadyCondition)
	switch {
	case !lh.DeletionTimestamp.IsZero() && !s.provisioned():
		s.hostProblem = &Blocker{infrav1.HostNotReadyReason, fmt.Sprintf("LibvirtHost %s is being deleted; delete the machine and name another host", lh.Name)}
		return errStop
	case s.provisioned() && ready != nil && slices.Contains(stillAnswers, ready.Reason):
		return nil
	case ready == nil || lh.Status.Capacity == nil && conditions.IsTrue(lh, infrav1.HostReadyCondition):
		s.hostProblem = &Blocker{infrav1.HostNotReadyReason, fmt.Sprintf("LibvirtHost %s has not been probed yet", lh.Name)}
		return errStop
	case !conditions.IsTrue(lh, infrav1.HostReadyCondition):
		s.hostProblem = &Blocker{ready.Reason, fmt.Sprintf("LibvirtHost %s is not ready: %s", lh.Name, ready.Message)}
		return errStop
	case !s.provisioned() && outdated(lh, time.Now()):
		s.hostProblem = &Blocker{infrav1.HostNotReadyReason, fmt.Sprintf("LibvirtHost %s is being probed again, since what is known of it is old", lh.Name)}
		return errStop
	}
	return nil
}

// outdated says whether a new machine should not rely on what the last probe has found: a host that was idle has not been
// looked at since, and its memory or its reservation may be another by now. The machine's arrival has it probed.
func outdated(lh *infrav1.LibvirtHost, now time.Time) bool {
	if lh.Status.LastChecked == nil {
		return false
	}
	interval := time.Duration(ptr.Deref(lh.Spec.HealthCheckIntervalSeconds, infrav1.DefaultHealthCheckIntervalSeconds)) * time.Second
	// While machines use a host, the pauses between its probes are longer by jitter.
	return lh.Status.ObservedGeneration != lh.Generation || now.Sub(lh.Status.LastChecked.Time) > interval+interval/2
}

// phaseDesired computes what the machine should be.
func (r *Reconciler) phaseDesired(ctx context.Context, s *scope) error {
	name := s.machine.Status.NodeName
	if name == "" {
		name = naming.Machine(s.machine.Namespace, s.cluster.Name, s.machine.Name)
	}
	s.desired = identity(s.machine, name)
	s.desired.Provisioned = s.provisioned()
	if s.desired.Provisioned {
		s.desired.Recovery = recoveryOf(s.machine, time.Now())
		var err error
		s.desired.Restart, err = r.dueRestart(ctx, s)
		return err
	}
	if problem := describe(&s.desired, s.machine, s.lhost); problem != nil {
		s.domainProblem = problem
		return errStop
	}
	return nil
}

// recordIdentity writes the machine's identity into its status before the first thing of it is created on the host. A machine
// that is deleted without it has left no trace there, and needs no host.
func (r *Reconciler) recordIdentity(ctx context.Context, s *scope) error {
	if s.machine.Status.DomainUUID != "" {
		return nil
	}
	base := s.machine.DeepCopy()
	s.machine.Status.NodeName = s.desired.Name
	s.machine.Status.DomainUUID = s.desired.UUID
	s.machine.Status.CreationStartedAt = new(metav1.Now())
	if err := r.guarded(writeIdentity, func() error { return r.Client.Status().Patch(ctx, s.machine, client.MergeFrom(base)) }); err != nil {
		return fmt.Errorf("recording the machine's identity: %w", err)
	}
	// The one that was made before this write would meet a conflict.
	var err error
	s.patch, err = patch.NewHelper(s.machine, r.Client)
	return err
}

// phaseConverge observes, plans and applies until the host is as it should be.
func (r *Reconciler) phaseConverge(ctx context.Context, s *scope) error {
	ctx, cancel := context.WithTimeout(ctx, r.HostTimeout)
	defer cancel()
	var done Progress
	if err := r.noteClone(ctx, s, &done); err != nil {
		return err
	}
	if err := r.connect(ctx, s); err != nil {
		s.hostProblem = explain(err, infrav1.ProvisioningFailedReason)
		return errStop
	}
	for range maxRounds {
		observed := timed(timedObserve)
		obs, err := s.host.Observe(ctx, s.desired.query())
		observed()
		if err != nil {
			s.hostProblem = explain(err, infrav1.ProvisioningFailedReason)
			return errStop
		}
		if err := s.note(s.desired, obs); err != nil {
			return err
		}
		plan, err := PlanProvisioning(s.desired, obs, done)
		if err != nil {
			return err
		}
		if plan.Blocked != nil {
			s.domainProblem, s.recoverAt = plan.Blocked, plan.Due
			return errStop
		}
		if plan.Done() {
			s.restarted, s.restartRefused = s.desired.Restart != nil && plan.Refused == "", plan.Refused
			return r.Jobs.Forget(ctx, s.desired.UUID)
		}
		if plan.Ended {
			if err := r.recordEnded(ctx, s); err != nil {
				return err
			}
			continue
		}
		if err := r.carryOut(ctx, s, plan, &done); err != nil {
			return err
		}
	}
	s.domainProblem = &Blocker{infrav1.ProvisioningFailedReason, fmt.Sprintf("the host was still not as planned after %d rounds; trying again", maxRounds)}
	return errStop
}

// carryOut applies a plan. A copy of the root disk, with which a plan ends, is left to a job.
func (r *Reconciler) carryOut(ctx context.Context, s *scope, plan Plan, done *Progress) error {
	if plan.creates() {
		if err := r.recordIdentity(ctx, s); err != nil {
			return err
		}
	}
	steps, last := plan.Steps, plan.Steps[len(plan.Steps)-1]
	if last.Kind == StepCloneVolume {
		steps = steps[:len(steps)-1]
	}
	err := r.apply(ctx, s.host, s.desired, steps, done)
	r.noteStart(s, steps, err)
	if err != nil {
		s.domainProblem = explain(err, infrav1.ProvisioningFailedReason)
		return errStop
	}
	if last.Kind == StepCloneVolume {
		r.startClone(s, last)
		return errStop
	}
	return nil
}

// connect gives the scope its host. A host whose key nobody has recorded yet is left to the host reconciler.
func (r *Reconciler) connect(ctx context.Context, s *scope) error {
	if s.lhost.Spec.HostKeyFingerprint == "" && s.lhost.Status.HostKeyFingerprint == "" {
		return hosts.NewConfigError(infrav1.HostNotReadyReason, fmt.Sprintf("LibvirtHost %s has not been probed yet", s.lhost.Name))
	}
	defer timed(timedConnect)()
	host, err := r.Hosts.Connect(ctx, s.lhost)
	if err != nil {
		return err
	}
	s.host = host
	return nil
}

func explain(err error, fallback string) *Blocker {
	reason, message := hosts.Explain(err, fallback)
	return &Blocker{Reason: reason, Message: message}
}
