// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine reconciles LibvirtMachines: observe the host, plan, apply, until the host is as the object says.
package machine

import (
	"context"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/index"
	"github.com/caplv/caplv/operator/controller/wake"
	"github.com/caplv/caplv/operator/drain"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/job"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines/status,verbs=get;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines/finalizers,verbs=update
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts;libvirtclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts/status,verbs=get;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=pods;namespaces,verbs=list
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinedrainrules,verbs=list
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles LibvirtMachines.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// APIReader reads from the API server: Secrets, and whatever must not be stale.
	APIReader client.Reader
	// Hosts connects to hosts.
	Hosts hosts.Connector
	// Jobs runs what takes longer than a reconcile may wait.
	Jobs *job.Runner
	// Events wakes the reconciler when something happens on a host; nil leaves that to its own looks.
	Events HostEvents
	// Images brings base images of clusters to hosts; nil leaves that to others.
	Images ImageStager
	// Drainer empties Nodes; SetupWithManager makes one when it is nil.
	Drainer *drain.Drainer
	// BootArtifacts brings kernels and initramfs of clusters to hosts; nil has machines boot from their disks.
	BootArtifacts BootStager
	// Recorder emits Events.
	Recorder events.EventRecorder
	// WatchFilterValue restricts the reconciler to objects with this value of Cluster API's watch label.
	WatchFilterValue string
	// HostTimeout bounds what one reconcile does on the host; 2 min when it is zero.
	HostTimeout time.Duration
	// FailPoint is told of every moment at which the operator might end; nil outside of tests.
	FailPoint func(FailPoint)
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.HostTimeout == 0 {
		r.HostTimeout = 2 * time.Minute
	}
	if r.Drainer == nil {
		// Its reads bypass the cache, which would otherwise come to hold every Pod.
		uncached, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
		if err != nil {
			return err
		}
		r.Drainer = &drain.Drainer{Client: uncached}
	}
	log := mgr.GetLogger().WithValues("controller", "libvirtmachine")
	clusterToMachines, err := util.ClusterToTypedObjectsMapper(mgr.GetClient(), &infrav1.LibvirtMachineList{}, mgr.GetScheme())
	if err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("libvirtmachine").
		For(&infrav1.LibvirtMachine{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue),
			wake.SpecOrMetadataChanged(),
		)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(
			util.MachineToInfrastructureMapFunc(infrav1.GroupVersion.WithKind("LibvirtMachine")),
		), builder.WithPredicates(wake.SpecOrMetadataChanged())).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToMachines), builder.WithPredicates(
			predicates.ClusterPausedTransitionsOrInfrastructureProvisioned(mgr.GetScheme(), log),
		)).
		WatchesRawSource(r.Jobs.Source()).
		Watches(&infrav1.LibvirtHost{}, handler.EnqueueRequestsFromMapFunc(r.hostToMachines), builder.WithPredicates(hostReadinessChanged())).
		WithOptions(wake.Options(options))
	if err := r.setupCollector(mgr, options); err != nil {
		return err
	}
	if r.Events != nil {
		b = b.WatchesRawSource(r.Events.Source())
	}
	return b.Complete(r)
}

// hostReadinessChanged wakes the machines of a host that came back, went away, was probed or was given back by another machine.
func hostReadinessChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*infrav1.LibvirtHost)
			after, ok2 := e.ObjectNew.(*infrav1.LibvirtHost)
			return ok && ok2 && (conditions.GetReason(before, infrav1.HostReadyCondition) != conditions.GetReason(after, infrav1.HostReadyCondition) ||
				before.Spec.URI != after.Spec.URI || !before.Status.LastChecked.Equal(after.Status.LastChecked) ||
				len(before.Status.Leftovers) != len(after.Status.Leftovers) ||
				!apiequality.Semantic.DeepEqual(before.Status.MachineRef, after.Status.MachineRef))
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func (r *Reconciler) hostToMachines(ctx context.Context, o client.Object) []reconcile.Request {
	machines := &infrav1.LibvirtMachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.MachineByHost: o.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the machines of a host failed", "LibvirtHost", client.ObjectKeyFromObject(o))
		return nil
	}
	requests := make([]reconcile.Request, 0, len(machines.Items))
	for i := range machines.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
	}
	return requests
}

// Reconcile brings one machine closer to what its object says.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, reterr error) {
	lm := &infrav1.LibvirtMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, lm); err != nil {
		if apierrors.IsNotFound(err) {
			r.unwatch(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	s := &scope{machine: lm, before: lm.DeepCopy()}
	if err := r.findOwners(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if isPaused, _, err := paused.EnsurePausedCondition(ctx, r.Client, s.cluster, lm); err != nil || isPaused {
		return ctrl.Result{}, err
	}
	deleting := !lm.DeletionTimestamp.IsZero()
	// The finalizer is stored before anything is created; its arrival wakes the reconciler again.
	if !deleting && s.owner != nil && s.cluster != nil {
		if added, err := r.ensureFinalizer(ctx, lm); err != nil || added {
			return ctrl.Result{}, err
		}
	}

	var err error
	if s.patch, err = patch.NewHelper(lm, r.Client); err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		if reterr != nil {
			return
		}
		updateStatus(s)
		write := writeStatus
		if s.cleanedUp {
			write = writeRemoveFinalizer
		}
		err := r.guarded(write, func() error {
			return s.patch.Patch(ctx, lm, patch.WithOwnedConditions{Conditions: ownedConditions})
		})
		if deleting {
			// The patch that removes the finalizer removes the object.
			err = client.IgnoreNotFound(err)
		}
		if err != nil {
			result, reterr = ctrl.Result{}, err
		}
		// Conditions may have been written even so, and the next reconcile would see no change to announce.
		r.announce(s)
	}()

	if deleting {
		return r.reconcileDelete(ctx, s)
	}
	return r.reconcileNormal(ctx, s)
}

// ensureFinalizer stores the finalizer and returns whether it was missing.
func (r *Reconciler) ensureFinalizer(ctx context.Context, lm *infrav1.LibvirtMachine) (added bool, err error) {
	if controllerutil.ContainsFinalizer(lm, infrav1.MachineFinalizer) {
		return false, nil
	}
	err = r.guarded(writeFinalizer, func() error {
		added, err = finalizers.EnsureFinalizer(ctx, r.Client, lm, infrav1.MachineFinalizer)
		return err
	})
	return added, err
}

// findOwners looks up the Machine and the Cluster. Either may be absent: before Cluster API has set the owner, and
// while everything is being deleted.
func (r *Reconciler) findOwners(ctx context.Context, s *scope) error {
	owner, err := util.GetOwnerMachine(ctx, r.Client, s.machine.ObjectMeta)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	s.owner = owner
	name := s.machine.Labels[clusterv1.ClusterNameLabel]
	if owner != nil {
		name = owner.Spec.ClusterName
	}
	if name == "" {
		return nil
	}
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.machine.Namespace, Name: name}, cluster); err != nil {
		return client.IgnoreNotFound(err)
	}
	s.cluster = cluster
	return nil
}
