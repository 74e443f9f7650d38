// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster reconciles LibvirtClusters: it checks that the control plane can be reached at the endpoint that the
// machines will use, before Cluster API lets any machine be made.
package cluster

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/wake"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusters/status,verbs=get;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch

const (
	// checkInterval is how often a reachable endpoint is checked again.
	checkInterval = 60 * time.Second
	dialTimeout   = 5 * time.Second
)

// Dialer opens a connection, as net.Dialer does.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Reconciler reconciles LibvirtClusters.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Recorder emits Events.
	Recorder events.EventRecorder
	// Dialer opens the connection of the check; a net.Dialer when it is nil.
	Dialer Dialer
	// WatchFilterValue restricts the reconciler to objects with this value of Cluster API's watch label.
	WatchFilterValue string
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Dialer == nil {
		r.Dialer = &net.Dialer{}
	}
	log := mgr.GetLogger().WithValues("controller", "libvirtcluster")
	return ctrl.NewControllerManagedBy(mgr).
		Named("libvirtcluster").
		For(&infrav1.LibvirtCluster{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue),
			predicates.ResourceIsNotExternallyManaged(mgr.GetScheme(), log),
			wake.SpecOrMetadataChanged(),
		)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(
			util.ClusterToInfrastructureMapFunc(ctx, infrav1.GroupVersion.WithKind("LibvirtCluster"), mgr.GetClient(), &infrav1.LibvirtCluster{}),
		), builder.WithPredicates(wake.SpecOrMetadataChanged())).
		WithOptions(wake.Options(options)).
		Complete(r)
}

// Reconcile checks the control plane's endpoint and writes what it found.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, reterr error) {
	lc := &infrav1.LibvirtCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, lc); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster, err := util.GetOwnerCluster(ctx, r.Client, lc.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	// Nothing was created for the cluster, so nothing holds up its deletion.
	if cluster == nil || !lc.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if isPaused, _, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, lc); err != nil || isPaused {
		return ctrl.Result{}, err
	}
	helper, err := patch.NewHelper(lc, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	before := ptr.Deref(conditions.Get(lc, infrav1.ClusterReadyCondition), metav1.Condition{})
	defer func() {
		if err := helper.Patch(ctx, lc, patch.WithOwnedConditions{Conditions: []string{infrav1.ClusterReadyCondition}}); err != nil {
			result, reterr = ctrl.Result{}, err
		}
		r.announce(lc, before)
	}()
	return r.check(ctx, lc, cluster), nil
}

func (r *Reconciler) check(ctx context.Context, lc *infrav1.LibvirtCluster, cluster *clusterv1.Cluster) ctrl.Result {
	endpoint := lc.Spec.ControlPlaneEndpoint
	if !endpoint.IsValid() {
		endpoint = cluster.Spec.ControlPlaneEndpoint
	}
	if !endpoint.IsValid() {
		setReady(lc, metav1.ConditionFalse, infrav1.WaitingForControlPlaneEndpointReason,
			"neither spec.controlPlaneEndpoint nor that of the Cluster is set; set one of them to the API server as the machines reach it")
		// A change of either object wakes the reconciler.
		return ctrl.Result{}
	}
	address := net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port)))
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := r.Dialer.DialContext(dialCtx, "tcp", address)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Control plane is not reachable", "address", address, "error", err.Error())
		setReady(lc, metav1.ConditionFalse, infrav1.ControlPlaneUnreachableReason,
			fmt.Sprintf("no TCP connection to %s: %v; machines could not join, so no new ones are made", address, err))
		return ctrl.Result{RequeueAfter: wake.Jitter(wake.RetryAfter(conditions.Get(lc, infrav1.ClusterReadyCondition), time.Now(), checkInterval))}
	}
	_ = conn.Close()
	setReady(lc, metav1.ConditionTrue, infrav1.ControlPlaneReachableReason, fmt.Sprintf("%s accepts connections", address))
	lc.Status.Initialization.Provisioned = new(true)
	return ctrl.Result{RequeueAfter: checkInterval}
}

func setReady(lc *infrav1.LibvirtCluster, status metav1.ConditionStatus, reason, message string) {
	lc.Status.Ready = new(status == metav1.ConditionTrue)
	conditions.Set(lc, metav1.Condition{Type: infrav1.ClusterReadyCondition, Status: status, Reason: reason, Message: message})
}

// announce emits an Event when readiness has changed.
func (r *Reconciler) announce(lc *infrav1.LibvirtCluster, before metav1.Condition) {
	after := ptr.Deref(conditions.Get(lc, infrav1.ClusterReadyCondition), metav1.Condition{})
	if after.Status == before.Status && after.Reason == before.Reason {
		return
	}
	kind := corev1.EventTypeNormal
	if after.Status != metav1.ConditionTrue {
		kind = corev1.EventTypeWarning
	}
	r.Recorder.Eventf(lc, nil, kind, after.Reason, "CheckingControlPlane", "%s", after.Message)
}
