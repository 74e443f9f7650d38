// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

const (
	// maxRequest and maxRestartMessage bound what the status keeps, in bytes.
	maxRequest        = 128
	maxRestartMessage = 2048
)

// restartRequest is the request that is to be served, empty for none: one that was begun, or that of the annotation.
func restartRequest(lm *infrav1.LibvirtMachine) string {
	if status := lm.Status.RestartRequest; status.Pending() {
		return status.Request
	}
	request := lm.Annotations[infrav1.RestartRequestAnnotation]
	if lm.Status.RestartRequest.Completed(request) {
		return ""
	}
	return request
}

// restartOf is what is known of a request for the machine's restart; nil for none.
func restartOf(lm *infrav1.LibvirtMachine) *Restart {
	how, ok := infrav1.ParseRestartRequest(restartRequest(lm))
	if !ok {
		return nil
	}
	return &Restart{Type: how, Ended: lm.Status.RestartRequest.Pending()}
}

// dueRestart is a request that has not been served. The cache may not know yet that it has been: the events of the restart itself
// wake the reconciler before that has arrived.
func (r *Reconciler) dueRestart(ctx context.Context, s *scope) (*Restart, error) {
	if restartOf(s.machine) == nil {
		return nil, nil
	}
	now := &infrav1.LibvirtMachine{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.machine), now); err != nil {
		return nil, err
	}
	s.machine.Status.RestartRequest = now.Status.RestartRequest
	return restartOf(s.machine), nil
}

// noteStart tells an attempt of the recovery policy from one that was asked for, which is not counted.
func (r *Reconciler) noteStart(s *scope, steps []Step, failure error) {
	if s.desired.Restart == nil {
		r.noteRecovery(s, steps, failure)
	}
}

// recordEnded writes into the status that the domain has ended as a request asks.
func (r *Reconciler) recordEnded(ctx context.Context, s *scope) error {
	base := s.machine.DeepCopy()
	s.machine.Status.RestartRequest = &infrav1.RestartRequestStatus{Request: restartRequest(s.machine), EndedTime: new(metav1.Now())}
	if err := r.guarded(writeEnded, func() error { return r.Client.Status().Patch(ctx, s.machine, client.MergeFrom(base)) }); err != nil {
		return fmt.Errorf("recording that the domain has ended: %w", err)
	}
	s.desired.Restart.Ended = true
	// The one that was made before this write would meet a conflict.
	var err error
	s.patch, err = patch.NewHelper(s.machine, r.Client)
	return err
}

// updateRestart says what has become of a request.
func updateRestart(s *scope) {
	request := restartRequest(s.machine)
	if request == "" || !s.machine.DeletionTimestamp.IsZero() || !s.provisioned() {
		return
	}
	request = request[:min(len(request), maxRequest)]
	status := s.machine.Status.RestartRequest
	if status == nil || status.Request != request {
		status = &infrav1.RestartRequestStatus{Request: request}
		s.machine.Status.RestartRequest = status
	}
	_, known := infrav1.ParseRestartRequest(request)
	status.Message = ""
	switch {
	case !known:
		status.Message = fmt.Sprintf("the annotation %s must be %s/ID or %s/ID; an ID has up to 63 letters, digits, dashes and dots",
			infrav1.RestartRequestAnnotation, infrav1.RestartTypePowerCycle, infrav1.RestartTypeRestart)
	case s.restarted, !s.desired.Provisioned && s.running:
		// A machine that is being created starts anyway.
		status.CompletionTime = new(metav1.Now())
	case s.restartRefused != "":
		status.Message = s.restartRefused
	case s.hostProblem != nil:
		status.Message = s.hostProblem.Message
	case s.domainProblem != nil:
		status.Message = s.domainProblem.Message
	}
	status.Message = status.Message[:min(len(status.Message), maxRestartMessage)]
}

// announceRestart emits an Event when a request was served or met an obstacle.
func (r *Reconciler) announceRestart(s *scope) {
	before, after := s.before.Status.RestartRequest, s.machine.Status.RestartRequest
	switch {
	case after == nil:
	case after.CompletionTime != nil && !before.Completed(after.Request):
		r.Recorder.Eventf(s.machine, nil, corev1.EventTypeNormal, "RestartCompleted", "RestartRequest", "domain %s runs as request %s asked", s.machine.Status.NodeName, after.Request)
	case after.Message != "" && (before == nil || before.Request != after.Request || before.Message == ""):
		r.Recorder.Eventf(s.machine, nil, corev1.EventTypeWarning, "RestartFailed", "RestartRequest", "request %s is not served yet: %s", after.Request, after.Message)
	}
}
