// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane reconciles LibvirtExternalControlPlanes: it reports to Cluster API that the control plane of the
// cluster that both run on is there, and keeps the kubeconfig by which Cluster API finds the machines' Nodes.
package controlplane

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	controlplanev1 "github.com/caplv/caplv/api/controlplane/v1alpha1"
	"github.com/caplv/caplv/operator/controller/wake"
)

// The right to request tokens of one service account is a Role of its own: operator/config/rbac/cluster_api_access.yaml.
//
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=libvirtexternalcontrolplanes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=libvirtexternalcontrolplanes/status,verbs=get;patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=libvirtexternalcontrolplanes/finalizers,verbs=update
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// checkInterval is how often API server and Secret are checked: the operator may not watch Secrets.
	checkInterval = 60 * time.Second
	probeTimeout  = 10 * time.Second
)

// Reconciler reconciles LibvirtExternalControlPlanes.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// APIReader reads Secrets from the API server.
	APIReader client.Reader
	// Config is how the operator reaches the API server.
	Config *rest.Config
	// ServiceAccount is whom Cluster API acts as in the cluster.
	ServiceAccount types.NamespacedName
	// Recorder emits Events.
	Recorder events.EventRecorder
	// Clock tells the time; time.Now when it is nil.
	Clock func() time.Time
	// WatchFilterValue restricts the reconciler to objects with this value of Cluster API's watch label.
	WatchFilterValue string
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Clock == nil {
		r.Clock = time.Now
	}
	log := mgr.GetLogger().WithValues("controller", "libvirtexternalcontrolplane")
	return ctrl.NewControllerManagedBy(mgr).
		Named("libvirtexternalcontrolplane").
		For(&controlplanev1.LibvirtExternalControlPlane{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue),
			predicates.ResourceIsNotExternallyManaged(mgr.GetScheme(), log),
			wake.SpecOrMetadataChanged(),
		)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster), builder.WithPredicates(wake.SpecOrMetadataChanged())).
		WithOptions(wake.Options(options)).
		Complete(r)
}

// ofCluster is the control plane of a Cluster.
func ofCluster(_ context.Context, o client.Object) []reconcile.Request {
	cluster, ok := o.(*clusterv1.Cluster)
	if !ok {
		return nil
	}
	ref := cluster.Spec.ControlPlaneRef
	if ref.APIGroup != controlplanev1.GroupVersion.Group || ref.Kind != "LibvirtExternalControlPlane" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}}}
}

// clusterOf is the Cluster that names the control plane; nil when there is none. It does not wait for Cluster API to set
// the owner reference: the kubeconfig should be there before Cluster API looks for it, since that tries again after 30 s only.
func (r *Reconciler) clusterOf(ctx context.Context, cp *controlplanev1.LibvirtExternalControlPlane) (*clusterv1.Cluster, error) {
	clusters := &clusterv1.ClusterList{}
	if err := r.Client.List(ctx, clusters, client.InNamespace(cp.Namespace)); err != nil {
		return nil, err
	}
	for i := range clusters.Items {
		for _, request := range ofCluster(ctx, &clusters.Items[i]) {
			if request.Name == cp.Name {
				return &clusters.Items[i], nil
			}
		}
	}
	return nil, nil
}

// Reconcile keeps the kubeconfig, checks the API server with it, and writes what it found. Nothing holds up the deletion:
// the Secret is collected with its owner, and the last token expires.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, reterr error) {
	cp := &controlplanev1.LibvirtExternalControlPlane{}
	if err := r.Client.Get(ctx, req.NamespacedName, cp); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster, err := r.clusterOf(ctx, cp)
	if err != nil {
		return ctrl.Result{}, err
	}
	if cluster == nil || !cp.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if isPaused, _, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, cp); err != nil || isPaused {
		return ctrl.Result{}, err
	}
	helper, err := patch.NewHelper(cp, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	before := ptr.Deref(conditions.Get(cp, controlplanev1.AvailableCondition), metav1.Condition{})
	defer func() {
		if err := helper.Patch(ctx, cp, patch.WithOwnedConditions{Conditions: []string{
			controlplanev1.AvailableCondition, controlplanev1.KubeconfigAvailableCondition,
		}}); err != nil {
			result, reterr = ctrl.Result{}, err
		}
		r.announce(cp, before)
	}()
	cp.Status.ExternalManagedControlPlane = new(true)
	return r.check(ctx, &scope{Reconciler: r, cp: cp, cluster: cluster.Name})
}

// check asks the API server for its version, with the kubeconfig that Cluster API uses.
func (r *Reconciler) check(ctx context.Context, s *scope) (ctrl.Result, error) {
	config, err := s.reconcileKubeconfig(ctx, false)
	if err != nil {
		return ctrl.Result{}, err
	}
	if config == nil {
		setAvailable(s.cp, metav1.ConditionFalse, controlplanev1.WaitingForKubeconfigReason, conditions.GetMessage(s.cp, controlplanev1.KubeconfigAvailableCondition))
		return ctrl.Result{RequeueAfter: s.retryAfter()}, nil
	}
	info, err := serverVersion(config)
	if apierrors.IsUnauthorized(err) && s.maintained {
		// Not genuine, or of a service account that was deleted and created again.
		if config, err = s.reconcileKubeconfig(ctx, true); err != nil {
			return ctrl.Result{}, err
		}
		if config != nil {
			info, err = serverVersion(config)
		}
	}
	if err != nil || info == nil {
		ctrl.LoggerFrom(ctx).Info("API server does not answer", "server", config.Host, "error", fmt.Sprint(err))
		setAvailable(s.cp, metav1.ConditionFalse, controlplanev1.APIServerUnreachableReason,
			fmt.Sprintf("%s does not answer: %v; Cluster API neither finds Nodes nor checks their health meanwhile", config.Host, err))
		return ctrl.Result{RequeueAfter: s.retryAfter()}, nil
	}
	setAvailable(s.cp, metav1.ConditionTrue, controlplanev1.APIServerReachableReason, fmt.Sprintf("%s answers", config.Host))
	s.cp.Status.Versions = []clusterv1.StatusVersion{{Version: info.GitVersion}}
	if conditions.IsTrue(s.cp, controlplanev1.KubeconfigAvailableCondition) {
		s.cp.Status.Initialization.ControlPlaneInitialized = new(true)
	}
	return ctrl.Result{RequeueAfter: s.nextCheck()}, nil
}

// serverVersion asks an API server for its version. A certificate that is not trusted and credentials that are not valid are errors.
func serverVersion(config *rest.Config) (*version.Info, error) {
	config = rest.CopyConfig(config)
	config.Timeout = probeTimeout
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return d.ServerVersion()
}

func setAvailable(cp *controlplanev1.LibvirtExternalControlPlane, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(cp, metav1.Condition{Type: controlplanev1.AvailableCondition, Status: status, Reason: reason, Message: message})
}

// announce emits an Event when availability has changed.
func (r *Reconciler) announce(cp *controlplanev1.LibvirtExternalControlPlane, before metav1.Condition) {
	after := ptr.Deref(conditions.Get(cp, controlplanev1.AvailableCondition), metav1.Condition{})
	if after.Status == before.Status && after.Reason == before.Reason {
		return
	}
	kind := corev1.EventTypeNormal
	if after.Status != metav1.ConditionTrue {
		kind = corev1.EventTypeWarning
	}
	r.Recorder.Eventf(cp, nil, kind, after.Reason, "CheckingAPIServer", "%s", after.Message)
}
