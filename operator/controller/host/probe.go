// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/wake"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/hostsetup"
	"github.com/caplv/caplv/operator/setup"
	"github.com/caplv/caplv/operator/virsh"
)

// maxRetry is the longest time between two probes of a host that is not usable.
const maxRetry = 5 * time.Minute

// due says whether the host must be contacted at all: a host that was found in order, and has no machines and no leftovers, is left alone.
func (r *Reconciler) due(lh *infrav1.LibvirtHost) bool {
	inUse := lh.Status.MachineCount > 0 || len(lh.Status.Leftovers) > 0
	return inUse || setUpSince(lh) || !conditions.IsTrue(lh, infrav1.HostReadyCondition) || lh.Status.ObservedGeneration != lh.Generation
}

// setUpSince says whether a run has set the host up since it was last probed, or nobody is to set it up any more.
func setUpSince(lh *infrav1.LibvirtHost) bool {
	if conditions.GetReason(lh, infrav1.HostReadyCondition) == infrav1.WaitingForBootstrapReason {
		return !hostsetup.AwaitsFirstRun(lh)
	}
	b := lh.Status.Bootstrap
	return b != nil && b.AppliedAt != nil && lh.Status.LastChecked.Before(b.AppliedAt)
}

// untilProbe returns how long the last probe is still good, or zero when a probe is due now.
func (r *Reconciler) untilProbe(lh *infrav1.LibvirtHost) time.Duration {
	if !r.due(lh) || setUpSince(lh) || lh.Status.LastChecked == nil || lh.Status.ObservedGeneration != lh.Generation {
		return 0
	}
	next := lh.Status.LastChecked.Add(r.pause(lh))
	return max(0, next.Sub(r.now()))
}

// pause is how long to wait after a probe: the interval of the spec after a success; after a failure a time that grows
// with how long the host has been failing, so that a mended host is found soon and a dead one is not hammered.
func (r *Reconciler) pause(lh *infrav1.LibvirtHost) time.Duration {
	interval := time.Duration(ptr.Deref(lh.Spec.HealthCheckIntervalSeconds, infrav1.DefaultHealthCheckIntervalSeconds)) * time.Second
	ready := conditions.Get(lh, infrav1.HostReadyCondition)
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return interval
	}
	return wake.RetryAfter(ready, r.now(), min(maxRetry, interval))
}

// nextProbe is pause with jitter, so that a fleet that came up together is not probed together for ever. It is zero for
// a host that may be left alone.
func (r *Reconciler) nextProbe(lh *infrav1.LibvirtHost) time.Duration {
	if !r.due(lh) {
		return 0
	}
	return wake.Jitter(r.pause(lh))
}

// probe contacts the host and writes the result into its status.
func (r *Reconciler) probe(ctx context.Context, lh *infrav1.LibvirtHost) {
	ctx, cancel := context.WithTimeout(ctx, r.ProbeTimeout)
	defer cancel()
	log := ctrl.LoggerFrom(ctx)
	found, facts, err := r.examine(ctx, lh)
	if err == nil {
		lh.Status.SystemUUID = found.SystemUUID
		err = r.checkDuplicate(ctx, lh)
	}
	lh.Status.LastChecked = new(metav1.NewTime(r.now()))
	lh.Status.ObservedGeneration = lh.Generation
	lh.Status.Ready = new(err == nil)
	if err != nil {
		reason, message := hosts.Explain(err, infrav1.ProbeFailedReason)
		message += remark(lh, facts, err)
		log.Info("Host is not usable", "reason", reason, "message", message)
		conditions.Set(lh, metav1.Condition{
			Type: infrav1.HostReadyCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		})
		return
	}
	lh.Status.LibvirtVersion = found.LibvirtVersion
	lh.Status.HypervisorVersion = found.HypervisorVersion
	lh.Status.Capacity = capacity(found, lh.Spec.ReservedResources)
	conditions.Set(lh, metav1.Condition{
		Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.HostReadyReason,
		Message: fmt.Sprintf("libvirt %s with %s offers %d vCPUs and %d MiB to machines", found.LibvirtVersion, lh.Spec.VirtType,
			lh.Status.Capacity.AvailableVCPUs, lh.Status.Capacity.AvailableMemoryMB) + remark(lh, facts, nil),
	})
}

// examine asks the host everything that a usable host must answer, and pins its key. What the roles have recorded about the host
// comes back with errors too, once the host has told it.
func (r *Reconciler) examine(ctx context.Context, lh *infrav1.LibvirtHost) (found virsh.Hypervisor, facts setup.Facts, err error) {
	if r.RequireFingerprint && lh.Spec.HostKeyFingerprint == "" {
		return found, facts, hosts.NewConfigError(infrav1.HostKeyNotPinnedReason,
			"spec.hostKeyFingerprint is required by this operator (--require-host-key-fingerprint); get it with: ssh-keyscan HOST | ssh-keygen -lf -")
	}
	host, err := r.Hosts.Connect(ctx, lh)
	if err != nil {
		return found, facts, err
	}
	pin(lh, host.HostKeyFingerprint())
	// The helper is asked first, because the recorded facts come with its answer, and reported last: what libvirt lacks is more telling.
	facts, helperErr := host.ProbeHelper(ctx)
	if helperErr != nil && hostctl.CodeOf(helperErr) == "" {
		return found, facts, helperErr
	}
	lh.Status.Setup = setupOf(facts)
	if err := host.ProbeSession(ctx, string(lh.Spec.VirtType)); err != nil {
		return found, facts, err
	}
	found, err = host.Probe(ctx, string(lh.Spec.VirtType))
	if err != nil {
		return virsh.Hypervisor{}, facts, err
	}
	return found, facts, helperErr
}

// pin records which host key the connection was verified against.
func pin(lh *infrav1.LibvirtHost, fingerprint string) {
	reason, message := infrav1.HostKeyFromSpecReason, "connections are verified against spec.hostKeyFingerprint"
	if lh.Spec.HostKeyFingerprint == "" {
		reason = infrav1.HostKeyRecordedReason
		message = fmt.Sprintf("the key %s was recorded at first contact; compare it with the host's own "+
			"(ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub) and put it into spec.hostKeyFingerprint", fingerprint)
	}
	lh.Status.HostKeyFingerprint = fingerprint
	conditions.Set(lh, metav1.Condition{Type: infrav1.HostKeyPinnedCondition, Status: metav1.ConditionTrue, Reason: reason, Message: message})
}

// capacity is what the host has and what is left after the reservation.
func capacity(found virsh.Hypervisor, reserved infrav1.ReservedResources) *infrav1.HostCapacity {
	const bound = 1 << 30
	cpus := int32(min(found.CPUs, bound))
	memory := int32(min(found.MemoryMiB, bound))
	return &infrav1.HostCapacity{
		TotalVCPUs:        cpus,
		TotalMemoryMB:     memory,
		AvailableVCPUs:    max(0, cpus-ptr.Deref(reserved.VCPUs, infrav1.DefaultReservedVCPUs)),
		AvailableMemoryMB: max(0, memory-ptr.Deref(reserved.MemoryMB, infrav1.DefaultReservedMemoryMB)),
	}
}
