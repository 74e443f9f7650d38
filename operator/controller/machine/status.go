// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// ownedConditions are the conditions that this reconciler alone writes.
var ownedConditions = []string{
	infrav1.MachineReadyCondition,
	infrav1.HostAvailableCondition,
	infrav1.BootstrapDataAvailableCondition,
	infrav1.BaseImageStagedCondition,
	infrav1.BootArtifactsStagedCondition,
	infrav1.DomainRunningCondition,
	infrav1.CleanupStalledCondition,
	infrav1.DrainingCondition,
}

// updateStatus turns the facts of a reconcile into status. Nothing else writes it.
func updateStatus(s *scope) {
	lm := s.machine
	lm.Status.ObservedGeneration = lm.Generation
	if s.seen != nil {
		lm.Status.DomainState = s.domainState
		lm.Status.VCPUs = int32(min(s.seen.VCPUs, 1<<30))
		lm.Status.MemoryMB = int32(min(s.seen.MemoryMiB, 1<<30))
	} else if s.observed {
		lm.Status.DomainState = ""
	}
	if s.running && lm.DeletionTimestamp.IsZero() {
		lm.Spec.ProviderID = providerID(lm)
		lm.Status.Initialization.Provisioned = new(true)
		lm.Status.Addresses = addressesOf(lm)
	}
	setHostAvailable(s)
	setBootstrapDataAvailable(s)
	setBaseImageStaged(s)
	setBootArtifactsStaged(s)
	setDomainRunning(s)
	setCleanupStalled(s)
	setDraining(s)
	setReady(s)
	updateRecovery(s)
	updateRestart(s)
}

func setHostAvailable(s *scope) {
	switch {
	case s.hostProblem != nil:
		set(s, infrav1.HostAvailableCondition, metav1.ConditionFalse, *s.hostProblem)
	case s.cleanupProblem != nil && s.host == nil:
		set(s, infrav1.HostAvailableCondition, metav1.ConditionFalse, *s.cleanupProblem)
	case s.observed || s.hostChecked:
		set(s, infrav1.HostAvailableCondition, metav1.ConditionTrue, Blocker{Reason: infrav1.HostAvailableReason})
	}
}

func setBootstrapDataAvailable(s *scope) {
	switch {
	case s.bootstrapProblem != nil:
		set(s, infrav1.BootstrapDataAvailableCondition, metav1.ConditionFalse, *s.bootstrapProblem)
	case s.bootstrapChecked:
		set(s, infrav1.BootstrapDataAvailableCondition, metav1.ConditionTrue, Blocker{Reason: infrav1.BootstrapDataAvailableReason})
	}
}

// setBaseImageStaged says nothing about an image that was there before anybody had to wait for it.
func setBaseImageStaged(s *scope) {
	switch {
	case s.imageProblem != nil:
		set(s, infrav1.BaseImageStagedCondition, metav1.ConditionFalse, *s.imageProblem)
	case s.imageStaged && conditions.Has(s.machine, infrav1.BaseImageStagedCondition):
		set(s, infrav1.BaseImageStagedCondition, metav1.ConditionTrue, Blocker{Reason: infrav1.BaseImageStagedReason})
	}
}

func setDomainRunning(s *scope) {
	switch {
	case s.running:
		set(s, infrav1.DomainRunningCondition, metav1.ConditionTrue, Blocker{Reason: infrav1.RunningReason})
	case s.domainProblem != nil:
		set(s, infrav1.DomainRunningCondition, metav1.ConditionFalse, *s.domainProblem)
	case s.hostProblem != nil && s.provisioned():
		set(s, infrav1.DomainRunningCondition, metav1.ConditionUnknown, Blocker{infrav1.StateUnknownReason,
			"the host cannot be asked, so the domain may or may not run: " + s.hostProblem.Message})
	case s.observed && s.machine.DeletionTimestamp.IsZero():
		set(s, infrav1.DomainRunningCondition, metav1.ConditionFalse, Blocker{Reason: infrav1.ProvisioningReason, Message: s.domainState})
	case s.observed:
		set(s, infrav1.DomainRunningCondition, metav1.ConditionFalse, Blocker{Reason: infrav1.DeletingReason, Message: s.domainState})
	}
}

func setCleanupStalled(s *scope) {
	switch {
	case s.cleanupProblem != nil:
		set(s, infrav1.CleanupStalledCondition, metav1.ConditionTrue, *s.cleanupProblem)
	case conditions.Has(s.machine, infrav1.CleanupStalledCondition):
		set(s, infrav1.CleanupStalledCondition, metav1.ConditionFalse, Blocker{Reason: infrav1.CleanupProceedingReason})
	}
}

// setReady sums up: the first problem in the order in which a machine comes to life is what stands in its way.
func setReady(s *scope) {
	ready := metav1.ConditionFalse
	var why Blocker
	switch {
	case !s.machine.DeletionTimestamp.IsZero():
		why = Blocker{infrav1.DeletingReason, "the machine is being removed from its host"}
		if s.cleanupProblem != nil {
			why.Message = "the removal from the host has stalled: " + s.cleanupProblem.Message
		} else if waits := s.leavingMessage(); waits != "" {
			why.Message = waits
		}
	case s.waiting != nil:
		why = *s.waiting
	case s.hostProblem != nil:
		why = *s.hostProblem
		if s.provisioned() {
			ready = metav1.ConditionUnknown
		}
	case s.bootstrapProblem != nil:
		why = *s.bootstrapProblem
	case s.imageProblem != nil:
		why = *s.imageProblem
	case s.bootProblem != nil:
		why = *s.bootProblem
	case s.domainProblem != nil:
		why = *s.domainProblem
	case s.running:
		ready = metav1.ConditionTrue
		why = Blocker{infrav1.RunningReason, fmt.Sprintf("domain %s runs on host %s", s.machine.Status.NodeName, s.machine.Spec.HostRef.Name)}
		if s.transient {
			why.Message += ", but is not defined there any more: nothing is left of it when it stops"
		}
	default:
		why = Blocker{infrav1.ProvisioningReason, "the machine is being created on its host"}
	}
	set(s, infrav1.MachineReadyCondition, ready, why)
	s.machine.Status.Ready = new(ready == metav1.ConditionTrue)
}

func set(s *scope, conditionType string, status metav1.ConditionStatus, why Blocker) {
	conditions.Set(s.machine, metav1.Condition{
		Type: conditionType, Status: status, Reason: why.Reason, Message: why.Message, ObservedGeneration: s.machine.Generation,
	})
}

// addressesOf lists every InternalIP, the Hostname and the InternalDNS name. The latter must equal the Node's name:
// approvers of kubelet serving certificates look for it.
func addressesOf(lm *infrav1.LibvirtMachine) []clusterv1.MachineAddress {
	var addresses []clusterv1.MachineAddress
	for _, a := range lm.Spec.Network.Addresses {
		if prefix, err := netip.ParsePrefix(string(a)); err == nil {
			addresses = append(addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: prefix.Addr().String()})
		}
	}
	return append(addresses,
		clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: lm.Status.NodeName},
		clusterv1.MachineAddress{Type: clusterv1.MachineInternalDNS, Address: lm.Status.NodeName},
	)
}

// announce emits an Event for each change that a user would want to know of.
func (r *Reconciler) announce(s *scope) {
	if s.cleanedUp {
		r.announceChanges(s, infrav1.DrainingCondition)
		if s.abandoned {
			r.announceAbandoned(s)
			return
		}
		r.Recorder.Eventf(s.machine, nil, corev1.EventTypeNormal, "CleanedUp", "Deleting", "nothing of the machine is left on host %s", s.machine.Spec.HostRef.Name)
		return
	}
	r.announceRestart(s)
	r.announceChanges(s, infrav1.MachineReadyCondition, infrav1.DrainingCondition, infrav1.CleanupStalledCondition)
}

// announceChanges emits an Event for each of these conditions that has changed.
func (r *Reconciler) announceChanges(s *scope, conditionTypes ...string) {
	for _, conditionType := range conditionTypes {
		before, after := conditions.Get(s.before, conditionType), conditions.Get(s.machine, conditionType)
		if after == nil || before != nil && before.Status == after.Status && before.Reason == after.Reason {
			continue
		}
		kind := corev1.EventTypeNormal
		if isTrouble(*after) {
			kind = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(s.machine, nil, kind, after.Reason, conditionType, "%s", orReason(after.Message, after.Reason))
	}
}

// isTrouble tells a failure from a step on the way.
func isTrouble(c metav1.Condition) bool {
	if c.Type == infrav1.CleanupStalledCondition {
		return c.Status == metav1.ConditionTrue
	}
	switch c.Reason {
	case infrav1.DrainingNodeReason, infrav1.WaitingForVolumeDetachReason, infrav1.NodeDrainedReason, infrav1.DrainSkippedReason,
		infrav1.RunningReason, infrav1.ProvisioningReason, infrav1.DeletingReason, infrav1.WaitingForOwnerMachineReason,
		infrav1.WaitingForClusterInfrastructureReason, infrav1.WaitingForBootstrapDataReason, infrav1.HostNotReadyReason,
		infrav1.HostInUseReason, infrav1.HostHasLeftoversReason, infrav1.CloningDiskReason, infrav1.BaseImageStagingReason,
		infrav1.BootArtifactsStagingReason:
		return false
	}
	return true
}

func orReason(message, reason string) string {
	if message == "" {
		return reason
	}
	return message
}
