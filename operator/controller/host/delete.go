// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostsetup"
)

// namedMachines is how many machines a message names.
const namedMachines = 3

// ownedConditions are the conditions that this reconciler alone writes.
var ownedConditions = []string{infrav1.HostReadyCondition, infrav1.HostKeyPinnedCondition, infrav1.SessionHardenedCondition}

// finalize lets a deleted host go when no machine needs it to be cleaned up, and what the operator was asked to take away from it is gone. It returns
// true when there is nothing else to do, until after.
func (r *Reconciler) finalize(ctx context.Context, lh *infrav1.LibvirtHost, machines []infrav1.LibvirtMachine) (after time.Duration, done bool, err error) {
	if !controllerutil.ContainsFinalizer(lh, infrav1.HostFinalizer) {
		return 0, true, nil
	}
	needed, err := r.needed(ctx, lh, machines)
	if err != nil || needed {
		return 0, false, err
	}
	// Before the helper is taken away.
	r.collectBootArtifacts(ctx, lh)
	if after, released, err := r.bootstrap(ctx, lh, false); err != nil || !released {
		return after, true, errors.Join(err, r.awaitOffboarding(ctx, lh))
	}
	r.Hosts.Forget(client.ObjectKeyFromObject(lh))
	helper, err := patch.NewHelper(lh, r.Client)
	if err != nil {
		return 0, false, err
	}
	controllerutil.RemoveFinalizer(lh, infrav1.HostFinalizer)
	return 0, true, client.IgnoreNotFound(helper.Patch(ctx, lh))
}

// collectTime bounds the removal of boot artifacts from a host.
const collectTime = time.Minute

// BootCollector removes from a host the boot artifacts that nobody wants any more; *bootartifact.Stager does.
type BootCollector interface {
	Collect(ctx context.Context, lh *infrav1.LibvirtHost) error
}

// collectBootArtifacts removes what machines of the host have booted. A host that cannot be reached is let go all the same.
func (r *Reconciler) collectBootArtifacts(ctx context.Context, lh *infrav1.LibvirtHost) {
	if r.BootArtifacts == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, collectTime)
	defer cancel()
	if err := r.BootArtifacts.Collect(ctx, lh); err != nil {
		ctrl.LoggerFrom(ctx).Info("Boot artifacts stay on the host", "reason", err.Error())
	}
}

// needed says whether a machine still needs the host.
func (r *Reconciler) needed(ctx context.Context, lh *infrav1.LibvirtHost, machines []infrav1.LibvirtMachine) (bool, error) {
	if len(machines) > 0 {
		return true, nil
	}
	// The cache may not know yet of a machine that has claimed the host.
	live := &infrav1.LibvirtHost{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(lh), live); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	ref := live.Status.MachineRef
	if ref == nil {
		return false, nil
	}
	holder := &infrav1.LibvirtMachine{}
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: lh.Namespace, Name: ref.Name}, holder)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading LibvirtMachine %s, which has claimed the host: %w", ref.Name, err)
	}
	return err == nil && holder.UID == ref.UID, nil
}

// awaitOffboarding says in Ready what a deleted host waits for.
func (r *Reconciler) awaitOffboarding(ctx context.Context, lh *infrav1.LibvirtHost) error {
	helper, err := patch.NewHelper(lh, r.Client)
	if err != nil {
		return err
	}
	before := conditions.Get(lh, infrav1.HostReadyCondition).DeepCopy()
	reason, message := infrav1.HostDeletingReason, "waiting for the run on the host to be ended"
	if hostsetup.WantsOffboarding(lh) {
		reason, message = infrav1.OffboardingReason, "waiting for what was set up to be taken away"
	}
	if b := conditions.Get(lh, infrav1.BootstrappedCondition); b != nil && b.Status != metav1.ConditionTrue {
		message += ": " + b.Message
	}
	lh.Status.Ready = new(false)
	conditions.Set(lh, metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message})
	if err := helper.Patch(ctx, lh, patch.WithOwnedConditions{Conditions: ownedConditions}); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.announce(lh, before)
	return nil
}

// awaitSetup says in Ready that the host is being set up for the first time.
func (*Reconciler) awaitSetup(lh *infrav1.LibvirtHost) {
	lh.Status.Ready = new(false)
	conditions.Set(lh, hostsetup.Waiting(lh))
}

// summarize says of a host that is being deleted which machines keep it. It goes on being probed as long as they do.
func summarize(lh *infrav1.LibvirtHost, machines []infrav1.LibvirtMachine) {
	if lh.DeletionTimestamp.IsZero() {
		return
	}
	var names []string
	for i := range machines {
		names = append(names, machines[i].Name)
	}
	if len(names) == 0 && lh.Status.MachineRef != nil {
		names = append(names, lh.Status.MachineRef.Name)
	}
	slices.Sort(names)
	message := "waiting for LibvirtMachines to be deleted: " + strings.Join(names[:min(len(names), namedMachines)], ", ")
	if more := len(names) - namedMachines; more > 0 {
		message += fmt.Sprintf(" and %d more", more)
	}
	if ready := conditions.Get(lh, infrav1.HostReadyCondition); ready != nil && ready.Status != metav1.ConditionTrue &&
		ready.Reason != infrav1.HostDeletingReason {
		message += "; they cannot be cleaned up: " + ready.Message
	}
	lh.Status.Ready = new(false)
	conditions.Set(lh, metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionFalse, Reason: infrav1.HostDeletingReason, Message: message})
}
