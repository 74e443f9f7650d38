// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

func groupOf(apiVersion string) string {
	group, _, _ := strings.Cut(apiVersion, "/")
	return group
}

// find looks up the Machine that owns the remediation, its LibvirtMachine, and its Cluster, which is nil when it is not known.
// A Machine of the same name that was created since is another one.
func (s *scope) find(ctx context.Context) (*clusterv1.Cluster, error) {
	for _, ref := range s.rem.OwnerReferences {
		if groupOf(ref.APIVersion) != clusterv1.GroupVersion.Group || ref.Kind != "Machine" {
			continue
		}
		m := &clusterv1.Machine{}
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.rem.Namespace, Name: ref.Name}, m); client.IgnoreNotFound(err) != nil {
			return nil, err
		} else if err == nil && m.UID == ref.UID {
			s.machine = m
		}
	}
	name := s.rem.Labels[clusterv1.ClusterNameLabel]
	if s.machine != nil {
		name = s.machine.Spec.ClusterName
		var err error
		if s.machinePatch, err = patch.NewHelper(s.machine, s.Client); err != nil {
			return nil, err
		}
		if err := s.findLibvirtMachine(ctx); err != nil {
			return nil, err
		}
	}
	cluster := &clusterv1.Cluster{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.rem.Namespace, Name: name}, cluster); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return cluster, nil
}

func (s *scope) findLibvirtMachine(ctx context.Context) error {
	ref := s.machine.Spec.InfrastructureRef
	if ref.APIGroup != infrav1.GroupVersion.Group || ref.Kind != "LibvirtMachine" {
		s.foreign = true
		return nil
	}
	lm := &infrav1.LibvirtMachine{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.rem.Namespace, Name: ref.Name}, lm); err != nil {
		return client.IgnoreNotFound(err)
	}
	s.lm = lm
	return nil
}

// count writes the next attempt into the status, so that its request is the same wherever the operator is interrupted.
func (s *scope) count(ctx context.Context) error {
	s.rem.Status.Attempts++
	s.rem.Status.LastAttemptTime = new(metav1.Now())
	if err := s.patch.Patch(ctx, s.rem); err != nil {
		return fmt.Errorf("recording attempt %d: %w", s.rem.Status.Attempts, err)
	}
	var err error
	s.patch, err = patch.NewHelper(s.rem, s.Client)
	s.Recorder.Eventf(s.rem, s.machine, corev1.EventTypeNormal, infrav1.RestartingDomainReason, "Remediating", "%s of domain %s, attempt %d",
		s.rem.Spec.Strategy.Type, s.lm.Status.NodeName, s.rem.Status.Attempts)
	return err
}

// ask has the machine's reconciler restart the domain; an empty request takes back what was asked for.
func (s *scope) ask(ctx context.Context, value string) error {
	if s.lm.Annotations[infrav1.RestartRequestAnnotation] == value {
		return nil
	}
	base := s.lm.DeepCopy()
	if value == "" {
		delete(s.lm.Annotations, infrav1.RestartRequestAnnotation)
	} else {
		metav1.SetMetaDataAnnotation(&s.lm.ObjectMeta, infrav1.RestartRequestAnnotation, value)
	}
	return client.IgnoreNotFound(s.Client.Patch(ctx, s.lm, client.MergeFrom(base)))
}

// giveBack has the Machine replaced by its owner, where that is somebody who does, and deletes it otherwise.
func (s *scope) giveBack(ctx context.Context, why string) (decision, error) {
	// A MachineSet looks at both conditions. Without the check's own, which it may have failed to write, it would do nothing.
	if replacesMachines(s.machine) && conditions.IsFalse(s.machine, clusterv1.MachineHealthCheckSucceededCondition) {
		if !conditions.IsFalse(s.machine, clusterv1.MachineOwnerRemediatedCondition) {
			conditions.Set(s.machine, metav1.Condition{
				Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
				Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason, Message: "Waiting for remediation: " + why,
			})
			if err := s.patchMachine(ctx); err != nil {
				return decision{}, err
			}
		}
		owner := metav1.GetControllerOf(s.machine)
		return decision{reason: infrav1.GivenBackToOwnerReason, message: fmt.Sprintf("the Machine is given back to %s %s, which replaces it: %s", owner.Kind, owner.Name, why)}, nil
	}
	if err := client.IgnoreNotFound(s.Client.Delete(ctx, s.machine.DeepCopy(), client.Preconditions{UID: new(s.machine.UID)})); err != nil {
		return decision{}, fmt.Errorf("deleting the Machine: %w", err)
	}
	s.Recorder.Eventf(s.machine, s.rem, corev1.EventTypeWarning, infrav1.MachineDeletingReason, "Remediating", "the Machine is deleted: %s", why)
	return decision{reason: infrav1.MachineDeletingReason, message: "the Machine is deleted, since no owner replaces it: " + why}, nil
}

// report writes the conditions of the remediation and of the Machine.
func (s *scope) report(ctx context.Context, d decision) error {
	status := metav1.ConditionTrue
	if isOver(d.reason) {
		status = metav1.ConditionFalse
	}
	if d.reason == infrav1.MachineDeletingReason && s.reason() == d.reason {
		// It has been said why.
		d.message = conditions.GetMessage(s.before, infrav1.RemediatingCondition)
	}
	conditions.Set(s.rem, metav1.Condition{Type: infrav1.RemediatingCondition, Status: status, Reason: d.reason, Message: d.message, ObservedGeneration: s.rem.Generation})
	if err := s.patch.Patch(ctx, s.rem, patch.WithOwnedConditions{Conditions: []string{infrav1.RemediatingCondition}}); err != nil {
		return client.IgnoreNotFound(err)
	}
	if s.reason() != d.reason && d.reason != infrav1.RestartingDomainReason {
		kind := corev1.EventTypeNormal
		if isOver(d.reason) {
			kind = corev1.EventTypeWarning
		}
		s.Recorder.Eventf(s.rem, s.machine, kind, d.reason, "Remediating", "%s", d.message)
	}
	return s.reportToMachine(ctx, d)
}

// reportToMachine says on the Machine what is done for it. The MachineHealthCheck writes the condition first: writing it earlier
// would make the check's own write fail, which it does not repeat.
func (s *scope) reportToMachine(ctx context.Context, d decision) error {
	if s.machine == nil || !s.machine.DeletionTimestamp.IsZero() || !conditions.Has(s.machine, clusterv1.MachineExternallyRemediatedCondition) {
		return nil
	}
	conditions.Set(s.machine, metav1.Condition{
		Type: clusterv1.MachineExternallyRemediatedCondition, Status: metav1.ConditionFalse, Reason: d.reason, Message: d.message,
	})
	return s.patchMachine(ctx)
}

// patchMachine writes the conditions that have changed since find or the last write.
func (s *scope) patchMachine(ctx context.Context) error {
	err := s.machinePatch.Patch(ctx, s.machine, patch.WithOwnedConditions{Conditions: []string{
		clusterv1.MachineExternallyRemediatedCondition, clusterv1.MachineOwnerRemediatedCondition,
	}})
	if err == nil {
		s.machinePatch, err = patch.NewHelper(s.machine, s.Client)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the conditions of the Machine: %w", err)
	}
	return nil
}

// reconcileDelete takes back what was asked of a Machine that has become healthy. A domain that has ended for it is started all the same.
func (s *scope) reconcileDelete(ctx context.Context) error {
	if !controllerutil.ContainsFinalizer(s.rem, infrav1.RemediationFinalizer) {
		return nil
	}
	if s.lm != nil && s.lm.Annotations[infrav1.RestartRequestAnnotation] == request(s.rem) {
		if err := s.ask(ctx, ""); err != nil {
			return err
		}
	}
	if s.machine != nil && s.machine.DeletionTimestamp.IsZero() {
		conditions.Delete(s.machine, clusterv1.MachineExternallyRemediatedCondition)
		if err := s.patchMachine(ctx); err != nil {
			return err
		}
	}
	base := s.rem.DeepCopy()
	controllerutil.RemoveFinalizer(s.rem, infrav1.RemediationFinalizer)
	return client.IgnoreNotFound(s.Client.Patch(ctx, s.rem, client.MergeFrom(base)))
}
