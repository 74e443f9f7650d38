// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package host reconciles LibvirtHosts: it probes a host while machines use it, and reports what it found.
package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/index"
	"github.com/caplv/caplv/operator/controller/wake"
	"github.com/caplv/caplv/operator/hostrunner"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/hostsetup"
	"github.com/caplv/caplv/operator/job"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts/status,verbs=get;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts/finalizers,verbs=update
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles LibvirtHosts.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// APIReader reads from the API server what must not be stale.
	APIReader client.Reader
	// Hosts connects to hosts.
	Hosts hosts.Connector
	// Recorder emits Events.
	Recorder events.EventRecorder
	// RequireFingerprint refuses hosts without spec.hostKeyFingerprint.
	RequireFingerprint bool
	// WatchFilterValue restricts the reconciler to objects with this value of Cluster API's watch label.
	WatchFilterValue string
	// ProbeTimeout bounds one probe; 30 s when it is zero.
	ProbeTimeout time.Duration
	// Runners run the playbooks that set hosts up. Without them, spec.bootstrap is answered with the reason RunnerUnavailable.
	Runners Runners
	// BootArtifacts removes what machines have booted from hosts that are deleted; nil leaves it there.
	BootArtifacts BootCollector
	// Jobs follow runs. They wake this reconciler, and no other.
	Jobs *job.Runner

	follower *follower
	// now is the clock, replaced in tests.
	now func() time.Time
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	if r.now == nil {
		r.now = time.Now
	}
	if r.ProbeTimeout == 0 {
		r.ProbeTimeout = 30 * time.Second
	}
	if r.Runners == nil {
		r.Runners = &hostrunner.Runners{Secrets: r.APIReader, RequireFingerprint: r.RequireFingerprint}
	}
	if r.Jobs == nil {
		return errors.New("the reconciler of LibvirtHosts needs Jobs")
	}
	r.follower = newFollower(r.Jobs)
	log := mgr.GetLogger().WithValues("controller", "libvirthost")
	return ctrl.NewControllerManagedBy(mgr).
		Named("libvirthost").
		For(&infrav1.LibvirtHost{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue),
			wake.SpecOrMetadataChanged(),
		)).
		// A younger object for the same host waits for the older one to go.
		Watches(&infrav1.LibvirtHost{}, handler.EnqueueRequestsFromMapFunc(r.toDuplicates), builder.WithPredicates(predicate.Funcs{
			CreateFunc:  func(event.CreateEvent) bool { return false },
			UpdateFunc:  func(event.UpdateEvent) bool { return false },
			GenericFunc: func(event.GenericEvent) bool { return false },
		})).
		// A machine that comes or goes starts or ends the probing of its host.
		Watches(&infrav1.LibvirtMachine{}, handler.EnqueueRequestsFromMapFunc(machineToHost), builder.WithPredicates(predicate.Funcs{
			UpdateFunc:  func(event.UpdateEvent) bool { return false },
			GenericFunc: func(event.GenericEvent) bool { return false },
		})).
		WatchesRawSource(r.Jobs.Source()).
		WithOptions(wake.Options(options)).
		Complete(r)
}

func machineToHost(_ context.Context, o client.Object) []reconcile.Request {
	m, ok := o.(*infrav1.LibvirtMachine)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.HostRef.Name}}}
}

// Reconcile probes the host if a probe is due and writes what it found.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, reterr error) {
	lh := &infrav1.LibvirtHost{}
	if err := r.Client.Get(ctx, req.NamespacedName, lh); err != nil {
		if apierrors.IsNotFound(err) {
			r.Hosts.Forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	if isPaused, _, err := paused.EnsurePausedCondition(ctx, r.Client, nil, lh); err != nil || isPaused {
		return ctrl.Result{}, err
	}

	if managed(lh) {
		// What was recorded of a run must not be read from a cache that does not have it yet.
		if err := r.APIReader.Get(ctx, req.NamespacedName, lh); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	deleting := !lh.DeletionTimestamp.IsZero()
	if !deleting {
		// Before any machine can use the host; its arrival wakes the reconciler again.
		if added, err := finalizers.EnsureFinalizer(ctx, r.Client, lh, infrav1.HostFinalizer); err != nil || added {
			return ctrl.Result{}, err
		}
	}

	machines := &infrav1.LibvirtMachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(lh.Namespace), client.MatchingFields{index.MachineByHost: lh.Name}); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the machines of the host: %w", err)
	}
	if deleting {
		if after, done, err := r.finalize(ctx, lh, machines.Items); err != nil || done {
			return ctrl.Result{RequeueAfter: after}, err
		}
	}
	inUse := len(machines.Items) > 0 || lh.Status.MachineRef != nil
	afterSetup, _, err := r.bootstrap(ctx, lh, inUse)
	if err != nil {
		return ctrl.Result{}, err
	}
	helper, err := patch.NewHelper(lh, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	before, hardened := conditions.Get(lh, infrav1.HostReadyCondition).DeepCopy(), conditions.Get(lh, infrav1.SessionHardenedCondition).DeepCopy()
	defer func() {
		if replaced, err := r.replaced(ctx, lh); err != nil || replaced {
			// What was found is about another object; the one that is there now has woken the reconciler itself.
			result, reterr = ctrl.Result{}, err
			return
		}
		summarize(lh, machines.Items)
		hostsetup.Harden(lh)
		if err := helper.Patch(ctx, lh, patch.WithOwnedConditions{Conditions: ownedConditions}); err != nil {
			result, reterr = ctrl.Result{}, err
		}
		r.announce(lh, before)
		r.tell(lh, hardened, conditions.Get(lh, infrav1.SessionHardenedCondition))
	}()

	lh.Status.MachineCount = int32(min(len(machines.Items), 1<<30))
	return ctrl.Result{RequeueAfter: sooner(afterSetup, r.observe(ctx, lh))}, nil
}

// observe probes the host if a probe is due, and returns when the next one is; zero for never.
func (r *Reconciler) observe(ctx context.Context, lh *infrav1.LibvirtHost) time.Duration {
	waits := hostsetup.AwaitsFirstRun(lh) && !conditions.IsTrue(lh, infrav1.HostReadyCondition)
	if waits && lh.Status.ObservedGeneration == lh.Generation {
		r.awaitSetup(lh)
		return 0
	}
	if wait := r.untilProbe(lh); wait > 0 {
		return wait
	}
	if !r.due(lh) {
		return 0
	}
	r.probe(ctx, lh)
	if waits && !conditions.IsTrue(lh, infrav1.HostReadyCondition) {
		// It was worth a look: somebody else may have set the host up.
		r.awaitSetup(lh)
		return 0
	}
	return r.nextProbe(lh)
}

// sooner is the earlier of two times to look again, of which zero is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// replaced says whether the object was deleted, or deleted and created again, while its host was being asked.
func (r *Reconciler) replaced(ctx context.Context, lh *infrav1.LibvirtHost) (bool, error) {
	current := &infrav1.LibvirtHost{}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(lh), current); err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	return current.UID != lh.UID, nil
}

// waits are reasons of hosts that are not ready and need nobody to look after them.
var waits = []string{infrav1.HostDeletingReason, infrav1.WaitingForBootstrapReason, infrav1.OffboardingReason}

// announce emits an Event when readiness has changed.
func (r *Reconciler) announce(lh *infrav1.LibvirtHost, before *metav1.Condition) {
	after := conditions.Get(lh, infrav1.HostReadyCondition)
	if after == nil || before != nil && after.Status == before.Status && after.Reason == before.Reason {
		return
	}
	kind := corev1.EventTypeNormal
	if after.Status != metav1.ConditionTrue && !slices.Contains(waits, after.Reason) {
		kind = corev1.EventTypeWarning
	}
	r.Recorder.Eventf(lh, nil, kind, after.Reason, "Probing", "%s", after.Message)
}
