// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// finding is a reason with its message.
type finding struct{ reason, message string }

// findings are what a reconcile knows of a Node.
type findings struct {
	// joined is about the Node as such.
	joined finding
	// rejected is what the API server says about labels and annotations that it refuses.
	rejected string
}

// setConditions turns findings into conditions. NodeLabelled is there only while anything is declared.
func setConditions(lm *infrav1.LibvirtMachine, found findings) {
	joined := metav1.ConditionFalse
	if found.joined.reason == infrav1.NodeJoinedReason {
		joined = metav1.ConditionTrue
	}
	conditions.Set(lm, set(lm, infrav1.NodeJoinedCondition, joined, found.joined))
	switch {
	case len(lm.Spec.NodeLabels)+len(lm.Spec.NodeAnnotations) == 0:
		conditions.Delete(lm, infrav1.NodeLabelledCondition)
	case joined != metav1.ConditionTrue:
		conditions.Set(lm, set(lm, infrav1.NodeLabelledCondition, metav1.ConditionFalse, found.joined))
	case found.rejected != "":
		conditions.Set(lm, set(lm, infrav1.NodeLabelledCondition, metav1.ConditionFalse, finding{infrav1.NodeMetadataRejectedReason, found.rejected}))
	default:
		conditions.Set(lm, set(lm, infrav1.NodeLabelledCondition, metav1.ConditionTrue, finding{reason: infrav1.NodeLabelledReason}))
	}
}

// announce emits an Event when a condition has changed. Waiting for the Node is nothing to be told of.
func announce(recorder events.EventRecorder, before, after *infrav1.LibvirtMachine, conditionType string) {
	was, is := conditions.Get(before, conditionType), conditions.Get(after, conditionType)
	if is == nil || is.Reason == infrav1.NodeNotJoinedReason || was != nil && was.Status == is.Status && was.Reason == is.Reason {
		return
	}
	// One that only repeats what the condition before it says.
	if conditionType == infrav1.NodeLabelledCondition && is.Reason == conditions.GetReason(after, infrav1.NodeJoinedCondition) {
		return
	}
	kind, note := corev1.EventTypeNormal, is.Message
	if is.Status != metav1.ConditionTrue {
		kind = corev1.EventTypeWarning
	}
	if note == "" {
		note = "Node " + after.Status.NodeName
	}
	recorder.Eventf(after, nil, kind, is.Reason, "ReconcilingNode", "%s", note)
}

// set is a condition of the machine, for its present generation.
func set(lm *infrav1.LibvirtMachine, conditionType string, status metav1.ConditionStatus, f finding) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: f.reason, Message: f.message, ObservedGeneration: lm.Generation}
}
