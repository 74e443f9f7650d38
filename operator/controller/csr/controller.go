// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package csr approves the certificates of kubelets that run in LibvirtMachines. What it knows it hands to operator/csr, which decides.
package csr

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
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
	"github.com/caplv/caplv/operator/csr"
)

// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;list;watch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=update
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=kubernetes.io/kube-apiserver-client-kubelet;kubernetes.io/kubelet-serving,verbs=approve
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines;libvirtclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines/status,verbs=get;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=services,resourceNames=kubernetes,verbs=get
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,resourceNames=kubernetes,verbs=get
// +kubebuilder:rbac:groups=k8s.ovn.org,resources=egressips,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// retryConflict is when a request is looked at again of which the cache had an old version.
const retryConflict = 200 * time.Millisecond

// Resolver looks up the addresses of a host, as net.Resolver does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Reconciler decides about pending CertificateSigningRequests of kubelets.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// APIReader reads from the API server: what is not watched, and what must not be stale.
	APIReader client.Reader
	// Recorder emits Events.
	Recorder events.EventRecorder
	// APIServer is the URL at which the operator reaches the API server.
	APIServer string
	// Resolver looks up the API server's names; net.DefaultResolver when it is nil.
	Resolver Resolver
	// WatchFilterValue restricts the reconciler to LibvirtMachines with this value of Cluster API's watch label.
	WatchFilterValue string
	// RetryWaiting is when a request that waits is looked at again, if nothing that is watched has changed before; 30 s when it is zero.
	RetryWaiting time.Duration

	load loadCounter
	// told has what was said of each pending request last, by name.
	told sync.Map
}

// SetupWithManager registers the reconciler and the indexes that it alone needs.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Resolver == nil {
		r.Resolver = net.DefaultResolver
	}
	if r.RetryWaiting == 0 {
		r.RetryWaiting = 30 * time.Second
	}
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return fmt.Errorf("adding indexes: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("certificatesigningrequest").
		For(&certificatesv1.CertificateSigningRequest{}, builder.WithPredicates(pendingOrGone())).
		Watches(&infrav1.LibvirtMachine{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			if lm, ok := o.(*infrav1.LibvirtMachine); ok {
				return r.requestsOf(ctx, lm.Status.NodeName)
			}
			return nil
		})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.requestsOf(ctx, o.GetName())
		}), builder.WithPredicates(providerIDChanged())).
		WithOptions(wake.Options(options)).
		Complete(r)
}

// pendingOrGone leaves out what others sign, and what is decided.
func pendingOrGone() predicate.Predicate {
	pending := func(o client.Object) bool {
		request, ok := o.(*certificatesv1.CertificateSigningRequest)
		return ok && isLoad(request)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return pending(e.Object) },
		// The one who decides is told as well, so that the load is counted anew.
		UpdateFunc: func(e event.UpdateEvent) bool { return pending(e.ObjectOld) || pending(e.ObjectNew) },
	}
}

// providerIDChanged leaves out a Node's heartbeats.
func providerIDChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, ok2 := e.ObjectNew.(*corev1.Node)
		return ok && ok2 && before.Spec.ProviderID != after.Spec.ProviderID
	}}
}

// requestsOf are the pending requests for a node.
func (r *Reconciler) requestsOf(ctx context.Context, node string) []reconcile.Request {
	if node == "" {
		return nil
	}
	var all []reconcile.Request
	for _, serving := range []bool{false, true} {
		requests, err := r.pendingFor(ctx, node, serving)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing the certificate requests of a node failed", "Node", node)
			continue
		}
		for i := range requests {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&requests[i])})
		}
	}
	return all
}

// Reconcile decides about one request, and approves it or says why not.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	load, err := r.countLoad(ctx, loadAge)
	if err != nil {
		return ctrl.Result{}, err
	}
	object := &certificatesv1.CertificateSigningRequest{}
	if err := r.Client.Get(ctx, req.NamespacedName, object); err != nil {
		if apierrors.IsNotFound(err) {
			r.told.Delete(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	request, refused := csr.Parse(object)
	if request == nil {
		r.tell(ctx, object, nil, *refused)
		return ctrl.Result{}, nil
	}
	known, lm, err := r.learn(ctx, request, load)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("finding out about node %s: %w", request.NodeName, err)
	}
	decision := request.Decide(known)
	if decision.Outcome == csr.Approve {
		if decision, err = r.approve(ctx, object, request, known, lm); err != nil {
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				return ctrl.Result{RequeueAfter: retryConflict}, nil
			}
			return ctrl.Result{}, err
		}
	}
	r.tell(ctx, object, lm, decision)
	if decision.Outcome == csr.Wait {
		return ctrl.Result{RequeueAfter: wake.Jitter(r.RetryWaiting)}, nil
	}
	return ctrl.Result{}, nil
}
