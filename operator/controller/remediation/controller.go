// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package remediation reconciles LibvirtRemediations, by which a MachineHealthCheck has an unhealthy machine helped: its domain
// is power-cycled, by a request to the machine's own reconciler, and if that is to no avail, the Machine is given back.
package remediation

import (
	"context"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
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
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/wake"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtremediations,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtremediations/status,verbs=get;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtremediations/finalizers,verbs=update
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=get;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles LibvirtRemediations.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Recorder emits Events.
	Recorder events.EventRecorder
	// WatchFilterValue restricts the reconciler to objects with this value of Cluster API's watch label.
	WatchFilterValue string
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := mgr.GetLogger().WithValues("controller", "libvirtremediation")
	ofCluster, err := util.ClusterToTypedObjectsMapper(mgr.GetClient(), &infrav1.LibvirtRemediationList{}, mgr.GetScheme())
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("libvirtremediation").
		For(&infrav1.LibvirtRemediation{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue),
			wake.SpecOrMetadataChanged(),
		)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(ofMachine)).
		Watches(&infrav1.LibvirtMachine{}, handler.EnqueueRequestsFromMapFunc(ofLibvirtMachine), builder.WithPredicates(restartProceeded())).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster), builder.WithPredicates(
			predicates.ClusterPausedTransitions(mgr.GetScheme(), log),
		)).
		WithOptions(wake.Options(options)).
		Complete(r)
}

// ofMachine is the remediation of a Machine, which has its name.
func ofMachine(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

// ofLibvirtMachine is the remediation of the Machine that owns a LibvirtMachine.
func ofLibvirtMachine(_ context.Context, o client.Object) []reconcile.Request {
	for _, ref := range o.GetOwnerReferences() {
		if groupOf(ref.APIVersion) == clusterv1.GroupVersion.Group && ref.Kind == "Machine" {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: ref.Name}}}
		}
	}
	return nil
}

// restartProceeded lets through what matters of a LibvirtMachine.
func restartProceeded() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*infrav1.LibvirtMachine)
		after, ok2 := e.ObjectNew.(*infrav1.LibvirtMachine)
		return ok && ok2 && (!apiequality.Semantic.DeepEqual(before.Status.RestartRequest, after.Status.RestartRequest) ||
			before.Annotations[infrav1.RestartRequestAnnotation] != after.Annotations[infrav1.RestartRequestAnnotation])
	}}
}

// scope is one reconcile.
type scope struct {
	*Reconciler
	rem, before *infrav1.LibvirtRemediation
	// machine is nil when it does not exist, machinePatch writes its conditions.
	machine      *clusterv1.Machine
	machinePatch *patch.Helper
	// lm is nil when it does not exist; foreign says that the Machine is another provider's.
	lm      *infrav1.LibvirtMachine
	foreign bool
	patch   *patch.Helper
}

// Reconcile takes the next step to help a machine.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, reterr error) {
	rem := &infrav1.LibvirtRemediation{}
	if err := r.Client.Get(ctx, req.NamespacedName, rem); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	s := &scope{Reconciler: r, rem: rem, before: rem.DeepCopy()}
	cluster, err := s.find(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if isPaused, _, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, rem); err != nil || isPaused {
		return ctrl.Result{}, err
	}
	if !rem.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, s.reconcileDelete(ctx)
	}
	// It is stored before a restart is asked for; its arrival wakes the reconciler again.
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, rem, infrav1.RemediationFinalizer); err != nil || added {
		return ctrl.Result{}, err
	}
	if s.patch, err = patch.NewHelper(rem, r.Client); err != nil {
		return ctrl.Result{}, err
	}
	d, err := s.reconcileNormal(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := s.report(ctx, d); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: d.after}, nil
}

// reconcileNormal decides, does it, and returns what to report.
func (s *scope) reconcileNormal(ctx context.Context) (decision, error) {
	switch {
	case s.machine == nil:
		return decision{
			reason:  infrav1.MachineNotFoundReason,
			message: "the Machine that owns this object does not exist; a MachineHealthCheck sets the owner, and nothing is left to do",
		}, nil
	case !s.machine.DeletionTimestamp.IsZero():
		return decision{reason: infrav1.MachineDeletingReason, message: "the Machine is being deleted"}, nil
	case s.foreign:
		return decision{
			reason:  infrav1.NotALibvirtMachineReason,
			message: "the Machine's infrastructure is no LibvirtMachine; have the MachineHealthCheck select others, or name another template",
		}, nil
	}
	d := decide(s.rem, s.machine, s.lm, time.Now())
	if d.action == attempt {
		if err := s.count(ctx); err != nil {
			return decision{}, err
		}
		d = decide(s.rem, s.machine, s.lm, time.Now())
	}
	switch {
	case d.action == giveBack:
		return s.giveBack(ctx, d.message)
	case d.reason == infrav1.RestartingDomainReason:
		return d, s.ask(ctx, request(s.rem))
	}
	return d, nil
}

// isOver says whether nothing more is tried.
func isOver(reason string) bool {
	return reason != infrav1.RestartingDomainReason && reason != infrav1.WaitingForHealthReason
}

// reason is that of the condition, as it was found.
func (s *scope) reason() string { return conditions.GetReason(s.before, infrav1.RemediatingCondition) }
