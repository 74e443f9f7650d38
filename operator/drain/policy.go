// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// Policy is what applies to the drain of one machine's Node.
type Policy struct {
	// Skip says why nothing is evicted and no volume is waited for; it is empty when the Node is to be drained. SkipVolumes says
	// that volumes alone are not waited for.
	Skip        string
	SkipVolumes bool
	// DrainTimeout and VolumeTimeout are limits; zero is none.
	DrainTimeout, VolumeTimeout time.Duration
	// Wait goes on with the drain after its timeout.
	Wait bool
	// StartedAt is when Cluster API began to drain the Node; zero when it did not.
	StartedAt time.Time
}

// PolicyOf combines what a LibvirtMachine and its Machine say. owner is nil when the Machine is gone.
func PolicyOf(lm *infrav1.LibvirtMachine, owner *clusterv1.Machine) Policy {
	p := Policy{Wait: lm.Spec.Deletion.OnDrainTimeout == infrav1.DrainTimeoutWait}
	var fromMachine clusterv1.MachineDeletionSpec
	if owner != nil {
		fromMachine = owner.Spec.Deletion
		if owner.Status.Deletion != nil {
			p.StartedAt = owner.Status.Deletion.NodeDrainStartTime.Time
		}
	}
	p.DrainTimeout = limit(infrav1.DefaultNodeDrainTimeoutSeconds, lm.Spec.Deletion.NodeDrainTimeoutSeconds, fromMachine.NodeDrainTimeoutSeconds)
	p.VolumeTimeout = limit(infrav1.DefaultNodeVolumeDetachTimeoutSeconds,
		lm.Spec.Deletion.NodeVolumeDetachTimeoutSeconds, fromMachine.NodeVolumeDetachTimeoutSeconds)
	p.SkipVolumes = annotated(lm, owner, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation)
	for _, annotation := range []string{infrav1.SkipDrainAnnotation, clusterv1.ExcludeNodeDrainingAnnotation} {
		if annotated(lm, owner, annotation) {
			p.Skip = "the annotation " + annotation + " forbids to drain"
			return p
		}
	}
	if drainedByClusterAPI(owner) {
		p.Skip = "Cluster API has drained the Node"
	}
	return p
}

func annotated(lm *infrav1.LibvirtMachine, owner *clusterv1.Machine, annotation string) bool {
	_, here := lm.Annotations[annotation]
	if owner == nil {
		return here
	}
	_, there := owner.Annotations[annotation]
	return here || there
}

// drainedByClusterAPI reads the one condition that Cluster API sets only when its drain came to an end: where the LibvirtMachine is
// deleted by somebody else meanwhile, it gives up.
func drainedByClusterAPI(owner *clusterv1.Machine) bool {
	return owner != nil && v1beta1conditions.IsTrue(owner, clusterv1.DrainingSucceededV1Beta1Condition)
}

// limit is the first one that is set, in seconds.
func limit(fallback int32, set ...*int32) time.Duration {
	for _, seconds := range set {
		if seconds != nil {
			return time.Duration(*seconds) * time.Second
		}
	}
	return time.Duration(fallback) * time.Second
}

// Begin is when the drain began, by Cluster API's account or ours, whichever is earlier.
func (p Policy) Begin(ours time.Time) time.Time {
	if !p.StartedAt.IsZero() && p.StartedAt.Before(ours) {
		return p.StartedAt
	}
	return ours
}

// Verdict is what follows from a pass.
type Verdict struct {
	// Over says that nothing is waited for any more.
	Over bool
	// Reason and Message are those of the condition Draining.
	Reason, Message string
	// Due is when the limit is reached that decides anew; zero for no such time.
	Due time.Time
}

// AfterPass decides what follows when a pass has left Pods.
func (p Policy) AfterPass(left Left, node string, since, now time.Time) Verdict {
	begin := p.Begin(since)
	late := p.DrainTimeout > 0 && now.Sub(begin) >= p.DrainTimeout
	pods := "1 Pod"
	switch {
	case left.Unknown:
		pods = "an unknown number of Pods"
	case left.Pods != 1:
		pods = fmt.Sprintf("%d Pods", left.Pods)
	}
	switch {
	case left.Pods == 0 && !left.Unknown:
		return Verdict{Over: true, Reason: infrav1.NodeDrainedReason, Message: fmt.Sprintf("no Pod that can be evicted is left on Node %s", node)}
	case late && !p.Wait:
		return Verdict{Over: true, Reason: infrav1.DrainTimedOutReason, Message: fmt.Sprintf(
			"%s left on Node %s after %s end with it: %s", pods, node, p.DrainTimeout, left.Message)}
	case late:
		return Verdict{Reason: infrav1.DrainTimedOutReason, Message: fmt.Sprintf(
			"%s left on Node %s after %s, and spec.deletion.onDrainTimeout is Wait; set it to Force, or the annotation %s, to go on: %s",
			pods, node, p.DrainTimeout, infrav1.SkipDrainAnnotation, left.Message)}
	}
	due := end(begin, p.DrainTimeout)
	until := ""
	if !due.IsZero() {
		until = ", to be done by " + due.UTC().Format(time.RFC3339)
	}
	return Verdict{Reason: infrav1.DrainingNodeReason, Due: due, Message: fmt.Sprintf(
		"%s left on Node %s; draining since %s%s: %s", pods, node, begin.UTC().Format(time.RFC3339), until, left.Message)}
}

// end is when a limit that began to count is reached; zero for no limit.
func end(begin time.Time, limit time.Duration) time.Time {
	if limit == 0 {
		return time.Time{}
	}
	return begin.Add(limit)
}

// AfterVolumes decides what follows while volumes, as Drainer.Volumes describes them, are attached to a Node that has been drained
// and is waited for since a time.
func (p Policy) AfterVolumes(volumes, node string, since, now time.Time) Verdict {
	due := end(since, p.VolumeTimeout)
	switch {
	case volumes == "" || p.SkipVolumes:
		return Verdict{Over: true}
	case !due.IsZero() && !now.Before(due):
		return Verdict{Over: true, Reason: infrav1.VolumeDetachTimedOutReason, Message: fmt.Sprintf(
			"volumes of Node %s were not detached within %s: %s", node, p.VolumeTimeout, volumes)}
	}
	return Verdict{Reason: infrav1.WaitingForVolumeDetachReason, Due: due, Message: fmt.Sprintf("waiting for the volumes of Node %s: %s", node, volumes)}
}
