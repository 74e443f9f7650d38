// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node reconciles the Nodes of LibvirtMachines: provider ID, labels and annotations.
package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/patch"
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
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines/status,verbs=get;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// resync is when a machine whose Node is not as it should be is looked at again, if no change of the Node wakes it before.
	resync = 15 * time.Second
	// clockSkew is how much younger a Node may look than it is.
	clockSkew = 10 * time.Second
)

// ownedConditions are the conditions that this reconciler alone writes.
var ownedConditions = []string{infrav1.NodeJoinedCondition, infrav1.NodeLabelledCondition}

// Reconciler reconciles the Nodes of LibvirtMachines.
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
	log := mgr.GetLogger().WithValues("controller", "node")
	clusterToMachines, err := util.ClusterToTypedObjectsMapper(mgr.GetClient(), &infrav1.LibvirtMachineList{}, mgr.GetScheme())
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("node").
		For(&infrav1.LibvirtMachine{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue),
			predicate.Or(wake.SpecOrMetadataChanged(), provisioned()),
		)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.nodeToMachines), builder.WithPredicates(predicate.Or(
			wake.SpecOrMetadataChanged(), providerIDChanged(),
		))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToMachines), builder.WithPredicates(
			predicates.ClusterPausedTransitions(mgr.GetScheme(), log),
		)).
		WithOptions(wake.Options(options)).
		Complete(r)
}

// provisioned wakes the reconciler when a machine's domain has started.
func provisioned() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*infrav1.LibvirtMachine)
		after, ok2 := e.ObjectNew.(*infrav1.LibvirtMachine)
		return ok && ok2 && (before.Status.NodeName != after.Status.NodeName ||
			!apiequality.Semantic.DeepEqual(before.Status.Initialization, after.Status.Initialization))
	}}
}

// providerIDChanged is there because a Node has no generation that would say so.
func providerIDChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, ok2 := e.ObjectNew.(*corev1.Node)
		return ok && ok2 && before.Spec.ProviderID != after.Spec.ProviderID
	}}
}

func (r *Reconciler) nodeToMachines(ctx context.Context, o client.Object) []reconcile.Request {
	machines := &infrav1.LibvirtMachineList{}
	if err := r.Client.List(ctx, machines, client.MatchingFields{index.MachineByNodeName: o.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the machines of a Node failed", "Node", o.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range machines.Items {
		lm := &machines.Items[i]
		if r.WatchFilterValue == "" || lm.Labels[clusterv1.WatchLabel] == r.WatchFilterValue {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(lm)})
		}
	}
	return requests
}

// Reconcile makes the Node of one machine what the machine says, and writes what it found.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	lm := &infrav1.LibvirtMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, lm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// A machine that is being deleted takes its Node with it.
	if !lm.DeletionTimestamp.IsZero() || lm.Status.NodeName == "" || lm.Spec.ProviderID == "" || !ptr.Deref(lm.Status.Initialization.Provisioned, false) {
		return ctrl.Result{}, nil
	}
	isPaused, err := r.paused(ctx, lm)
	if err != nil || isPaused {
		return ctrl.Result{}, err
	}
	found, err := r.reconcileNode(ctx, lm)
	if err != nil {
		if apierrors.IsConflict(err) {
			// The cache had an old version; the new one wakes the reconciler, and this is for the case that it came before.
			return ctrl.Result{RequeueAfter: time.Second}, nil
		}
		return ctrl.Result{}, err
	}
	if err := r.write(ctx, lm, found); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if found.joined.reason != infrav1.NodeJoinedReason || found.rejected != "" {
		return ctrl.Result{RequeueAfter: wake.Jitter(resync)}, nil
	}
	return ctrl.Result{}, nil
}

// paused returns whether the machine or its Cluster is paused. The condition Paused is the machine reconciler's.
func (r *Reconciler) paused(ctx context.Context, lm *infrav1.LibvirtMachine) (bool, error) {
	cluster := &clusterv1.Cluster{}
	key := client.ObjectKey{Namespace: lm.Namespace, Name: lm.Labels[clusterv1.ClusterNameLabel]}
	if err := r.Client.Get(ctx, key, cluster); err != nil {
		return annotations.HasPaused(lm), client.IgnoreNotFound(err)
	}
	return annotations.IsPaused(cluster, lm), nil
}

// reconcileNode sets what is missing on the Node, in one patch that fails when somebody else was faster.
func (r *Reconciler) reconcileNode(ctx context.Context, lm *infrav1.LibvirtMachine) (findings, error) {
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: lm.Status.NodeName}, node); err != nil {
		if !apierrors.IsNotFound(err) {
			return findings{}, err
		}
		return findings{joined: finding{infrav1.NodeNotJoinedReason, fmt.Sprintf("waiting for the kubelet to register Node %s", lm.Status.NodeName)}}, nil
	}
	if problem := foreign(lm, node); problem != nil {
		return findings{joined: *problem}, nil
	}
	found := findings{joined: finding{reason: infrav1.NodeJoinedReason}}
	base := node.DeepCopy()
	if node.Spec.ProviderID == "" {
		node.Spec.ProviderID = lm.Spec.ProviderID
		if err := r.patch(ctx, node, base); err != nil {
			return findings{}, fmt.Errorf("setting the provider ID of Node %s: %w", node.Name, err)
		}
		r.Recorder.Eventf(lm, node, corev1.EventTypeNormal, "ProviderIDSet", "ReconcilingNode", "Node %s has got provider ID %s", node.Name, lm.Spec.ProviderID)
		base = node.DeepCopy()
	}
	labels, annotations := applyMetadata(node.Labels, node.Annotations, &lm.Spec)
	if apiequality.Semantic.DeepEqual(labels, node.Labels) && apiequality.Semantic.DeepEqual(annotations, node.Annotations) {
		return found, nil
	}
	node.Labels, node.Annotations = labels, annotations
	err := r.patch(ctx, node, base)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		found.rejected = err.Error()
		return found, nil
	}
	return found, err
}

func (r *Reconciler) patch(ctx context.Context, node, base *corev1.Node) error {
	return r.Client.Patch(ctx, node, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
}

// Belongs returns whether a Node of the machine's name is its Node. The machine's provider ID must be known.
func Belongs(lm *infrav1.LibvirtMachine, node *corev1.Node) bool { return foreign(lm, node) == nil }

// foreign returns why a Node of the machine's name is not its Node.
func foreign(lm *infrav1.LibvirtMachine, node *corev1.Node) *finding {
	begin := ptr.Deref(lm.Status.CreationStartedAt, lm.CreationTimestamp)
	switch {
	case node.Spec.ProviderID == lm.Spec.ProviderID:
		return nil
	case node.Spec.ProviderID != "":
		return &finding{infrav1.ProviderIDMismatchReason, fmt.Sprintf(
			"Node %s has provider ID %s, and the machine has %s: it is the Node of another machine or of an earlier one; delete it, and the machine can join",
			node.Name, node.Spec.ProviderID, lm.Spec.ProviderID)}
	case node.CreationTimestamp.Add(clockSkew).Before(begin.Time):
		return &finding{infrav1.StaleNodeReason, fmt.Sprintf(
			"Node %s is older than the machine and has no provider ID, so it is not the machine's; delete it, and the machine can join", node.Name)}
	}
	return nil
}

// write puts what was found into the machine's status, and announces what has changed.
func (r *Reconciler) write(ctx context.Context, lm *infrav1.LibvirtMachine, found findings) error {
	before := lm.DeepCopy()
	helper, err := patch.NewHelper(lm, r.Client)
	if err != nil {
		return err
	}
	setConditions(lm, found)
	if err := helper.Patch(ctx, lm, patch.WithOwnedConditions{Conditions: ownedConditions}); err != nil {
		return err
	}
	for _, conditionType := range ownedConditions {
		announce(r.Recorder, before, lm, conditionType)
	}
	return nil
}
