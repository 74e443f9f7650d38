// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/wake"
	"github.com/caplv/caplv/operator/drain"
)

const (
	// drainPoll is the longest time between two passes of a drain. Early passes follow each other faster.
	drainPoll = 20 * time.Second
	// shutdownPoll is how often a guest that shuts down is looked at.
	shutdownPoll = time.Second
)

// shutdown is what a deletion knows of the shutdown of the guest.
type shutdown struct {
	// waiting says that the guest is still at it.
	waiting bool
	// refused says that libvirt could not ask the guest.
	refused bool
}

// leave drains the machine's Node and waits for its volumes, one pass a reconcile, and returns when to go on; zero when
// nothing keeps the machine any more. A machine without a Node, or whose Node is gone, has nothing to wait for.
func (r *Reconciler) leave(ctx context.Context, s *scope) (time.Duration, error) {
	nodes, err := r.nodesOf(ctx, s.machine)
	if err != nil {
		return 0, err
	}
	status := ptr.Deref(s.machine.Status.Deletion, infrav1.LibvirtMachineDeletionStatus{})
	s.hadNode = len(nodes) > 0 || status.NodeLeftAt != nil || conditions.IsTrue(s.before, infrav1.NodeJoinedCondition)
	if len(nodes) == 0 || status.NodeLeftAt != nil {
		return 0, nil
	}
	now := time.Now()
	policy := drain.PolicyOf(s.machine, s.owner)
	verdict := drain.Verdict{Over: true, Reason: infrav1.DrainSkippedReason, Message: policy.Skip}
	if policy.Skip == "" {
		if status.NodeDrainStartedAt == nil {
			status.NodeDrainStartedAt = new(metav1.NewTime(now))
		}
		verdict = r.drainOnce(ctx, s, policy, nodes, &status, now)
	}
	if verdict.Over {
		status.NodeLeftAt = new(metav1.NewTime(now))
	}
	s.draining = verdict
	s.machine.Status.Deletion = &status
	if verdict.Over {
		return 0, nil
	}
	after := wake.Jitter(wake.RetryAfter(conditions.Get(s.before, infrav1.DrainingCondition), now, drainPoll))
	if !verdict.Due.IsZero() {
		after = min(after, max(verdict.Due.Sub(now), time.Millisecond))
	}
	return after, nil
}

// drainOnce does one pass over the Nodes; there is more than one only when somebody has given another Node the machine's provider ID.
func (r *Reconciler) drainOnce(
	ctx context.Context, s *scope, policy drain.Policy, nodes []corev1.Node, status *infrav1.LibvirtMachineDeletionStatus, now time.Time,
) drain.Verdict {
	var last drain.Verdict
	for i := range nodes {
		node := &nodes[i]
		left, err := r.Drainer.Pass(ctx, node, s.drainedMachine(), s.drainedCluster())
		if err != nil {
			// It counts against the timeout like any other Pod that stays.
			ctrl.LoggerFrom(ctx).Error(err, "Draining a Node failed", "Node", node.Name)
			left = drain.Left{Unknown: true, Message: err.Error()}
		}
		drained := policy.AfterPass(left, node.Name, status.NodeDrainStartedAt.Time, now)
		if last = drained; !drained.Over {
			return drained
		}
		if drained.Reason == infrav1.DrainTimedOutReason {
			continue // Pods that were not evicted keep their volumes.
		}
		volumes, err := r.Drainer.Volumes(ctx, node)
		if err != nil {
			volumes = err.Error() // It counts against the limit as well.
		}
		if volumes != "" && status.VolumeDetachStartedAt == nil {
			status.VolumeDetachStartedAt = new(metav1.NewTime(now))
		}
		detached := policy.AfterVolumes(volumes, node.Name, ptr.Deref(status.VolumeDetachStartedAt, metav1.NewTime(now)).Time, now)
		if !detached.Over {
			return detached
		}
		if detached.Reason != "" {
			last = detached
		}
	}
	return last
}

// drainedMachine and drainedCluster are what MachineDrainRules select by, also when the objects are gone.
func (s *scope) drainedMachine() *clusterv1.Machine {
	if s.owner != nil {
		return s.owner
	}
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.machine.Namespace, Name: s.machine.Name, Labels: s.machine.Labels}}
}

func (s *scope) drainedCluster() *clusterv1.Cluster {
	if s.cluster != nil {
		return s.cluster
	}
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.machine.Namespace, Name: s.machine.Labels[clusterv1.ClusterNameLabel]}}
}

// shutdownState is how far the guest's shutdown is. One that never became a Node has nothing that a shutdown would save.
func (s *scope) shutdownState(now time.Time) ShutdownState {
	grace := time.Duration(ptr.Deref(s.machine.Spec.Deletion.ShutdownGracePeriodSeconds, infrav1.DefaultShutdownGracePeriodSeconds)) * time.Second
	switch {
	case !s.hadNode || s.shutdown.refused || grace == 0:
		return ShutdownOver
	case s.machine.Status.Deletion == nil || s.machine.Status.Deletion.ShutdownRequestedAt == nil:
		return ShutdownDue
	case now.Sub(s.machine.Status.Deletion.ShutdownRequestedAt.Time) < grace:
		return ShutdownUnderWay
	}
	return ShutdownOver
}

// confirmShutdown asks the API server whether the guest was asked already, where the cache says that it was not: the cache may lag
// behind, and a guest that is asked again has its grace from the start.
func (r *Reconciler) confirmShutdown(ctx context.Context, s *scope) error {
	if s.shutdownState(time.Now()) != ShutdownDue {
		return nil
	}
	live := &infrav1.LibvirtMachine{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.machine), live); err != nil {
		return err
	}
	if live.Status.Deletion == nil || live.Status.Deletion.ShutdownRequestedAt == nil {
		return nil
	}
	if s.machine.Status.Deletion == nil {
		s.machine.Status.Deletion = &infrav1.LibvirtMachineDeletionStatus{}
	}
	s.machine.Status.Deletion.ShutdownRequestedAt = live.Status.Deletion.ShutdownRequestedAt
	return nil
}

// noteShutdown notes what came of a request to shut down, and returns whether the step was one. A guest that cannot be asked is
// destroyed like one that does not listen.
func (r *Reconciler) noteShutdown(s *scope, step Step, err error) bool {
	if step.Kind != StepShutdownDomain {
		return false
	}
	if err != nil {
		s.shutdown.refused = true
		r.Recorder.Eventf(s.machine, nil, corev1.EventTypeWarning, "ShutdownRefused", "Deleting", "the guest could not be asked to shut down: %v", err)
		return true
	}
	if s.machine.Status.Deletion == nil {
		s.machine.Status.Deletion = &infrav1.LibvirtMachineDeletionStatus{}
	}
	s.machine.Status.Deletion.ShutdownRequestedAt = new(metav1.Now())
	r.Recorder.Eventf(s.machine, nil, corev1.EventTypeNormal, "ShutdownRequested", "Deleting", "the guest was asked to shut down")
	return true
}

func setDraining(s *scope) {
	if s.draining.Reason == "" {
		return
	}
	status := metav1.ConditionTrue
	if s.draining.Over {
		status = metav1.ConditionFalse
	}
	set(s, infrav1.DrainingCondition, status, Blocker{s.draining.Reason, s.draining.Message})
}

// leavingMessage says what a deletion waits for before it removes anything.
func (s *scope) leavingMessage() string {
	switch {
	case s.draining.Reason != "" && !s.draining.Over:
		return s.draining.Message
	case s.shutdown.waiting:
		return fmt.Sprintf("waiting for the guest to shut down, which it was asked to at %s",
			s.machine.Status.Deletion.ShutdownRequestedAt.UTC().Format(time.RFC3339))
	}
	return ""
}
