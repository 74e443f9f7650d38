// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

// FailPoint is a moment right before or right after a change that outlives the operator: a step on the host, or a write
// to the API server. It reads before:DefineDomain. Tests end the operator there; Reconciler.FailPoint is told of each.
type FailPoint string

// The writes to the API server that have fail points; all others are steps, and called by their kind.
const (
	writeFinalizer       = "StoreFinalizer"
	writeClaim           = "ClaimHost"
	writeIdentity        = "RecordIdentity"
	writeEnded           = "RecordEnded"
	writeStatus          = "WriteStatus"
	writeRelease         = "ReleaseHost"
	writeRemoveFinalizer = "RemoveFinalizer"
	writeDeleteNode      = "DeleteNode"
)

// StepKinds lists every kind of step.
func StepKinds() []StepKind {
	return []StepKind{
		StepRefreshPool, StepStartPool, StepDefineDomain, StepStageDirectory, StepDefinePool, StepCreateVolume,
		StepCloneVolume, StepResizeVolume, StepMarkCloned, StepStartDomain, StepResumeDomain,
		StepShutdownDomain, StepDestroyDomain, StepDeleteVolume, StepDestroyPool, StepUndefinePool, StepRemoveDirectory, StepUndefineDomain,
	}
}

// FailPoints lists every fail point.
func FailPoints() []FailPoint {
	var points []FailPoint
	add := func(what string) { points = append(points, before(what), after(what)) }
	for _, write := range []string{
		writeFinalizer, writeClaim, writeIdentity, writeEnded, writeStatus, writeRelease, writeRemoveFinalizer, writeDeleteNode,
	} {
		add(write)
	}
	for _, kind := range StepKinds() {
		add(string(kind))
	}
	return points
}

func before(what string) FailPoint { return FailPoint("before:" + what) }
func after(what string) FailPoint  { return FailPoint("after:" + what) }

// guarded makes a change between its two fail points. What fails has no point after it.
func (r *Reconciler) guarded(what string, change func() error) error {
	if r.FailPoint == nil {
		return change()
	}
	r.FailPoint(before(what))
	if err := change(); err != nil {
		return err
	}
	r.FailPoint(after(what))
	return nil
}
