// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/csr"
	"github.com/caplv/caplv/operator/controller/index"
	"github.com/caplv/caplv/test/bench/controlplane"
)

const (
	configDir = "../../config"
	// apiName and apiAddress are how the machines of the Cluster reach its API server.
	apiName, apiAddress = "api.prod.example.com", "192.0.2.1"
)

// suite is a real API server, and the approver with the rights that the operator is shipped with.
var suite struct {
	cp *controlplane.ControlPlane
	// account acts as the operator's service account.
	account  client.Client
	resolver *resolver
}

// resolver is the DNS of the tests.
type resolver struct{ broken atomic.Bool }

func (r *resolver) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	switch {
	case r.broken.Load():
		return nil, &net.DNSError{Err: "server misbehaving", Name: host, IsTemporary: true}
	case host == apiName:
		return []netip.Addr{netip.MustParseAddr(apiAddress)}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "caplv-csr-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	stop, err := setUp(ctx, dir)
	defer stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "setting up:", err)
		return 1
	}
	return m.Run()
}

// setUp starts everything. The function that it returns stops what was started, also after an error.
func setUp(ctx context.Context, dir string) (func(), error) {
	stop := func() {}
	var err error
	if suite.cp, err = controlplane.Start(ctx, controlplane.Options{
		Dir: dir, CRDDir: filepath.Join(configDir, "crd"), WithoutCoreManager: true,
		AddToScheme: []func(*runtime.Scheme) error{infrav1.AddToScheme},
	}); err != nil {
		return stop, err
	}
	stop = func() { _ = suite.cp.Stop() }
	if err := prepare(ctx); err != nil {
		return stop, err
	}
	path, err := suite.cp.ServiceAccountKubeconfig(ctx, "caplv-system", "caplv-manager")
	if err != nil {
		return stop, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return stop, err
	}
	if suite.account, err = client.New(config, client.Options{Scheme: suite.cp.Client().Scheme()}); err != nil {
		return stop, err
	}
	end, err := startManager(config)
	return func() {
		end()
		_ = suite.cp.Stop()
	}, err
}

// prepare installs the operator's roles, what kubeadm lets bootstrap tokens do, and a Cluster.
func prepare(ctx context.Context) error {
	manifests, err := suite.cp.KustomizeBuild(ctx, filepath.Join(configDir, "default"))
	if err != nil {
		return err
	}
	others, err := controlplane.Except(manifests, "ValidatingWebhookConfiguration", "Issuer", "Certificate")
	if err != nil {
		return err
	}
	if err := suite.cp.Apply(ctx, others); err != nil {
		return err
	}
	var all []error
	for _, group := range []string{"system:bootstrappers", "system:serviceaccounts:openshift-machine-config-operator"} {
		all = append(all, suite.cp.Client().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "bootstrap-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group}},
		}))
	}
	all = append(all, suite.cp.Client().Create(ctx, &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prod"},
		Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: apiName, Port: 6443},
			InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtCluster", Name: "prod"},
		},
	}))
	return errors.Join(all...)
}

// startManager starts a manager with nothing but the approver. The function that it returns ends it.
func startManager(config *rest.Config) (func(), error) {
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: suite.cp.Client().Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Logger: logr.Discard(),
	})
	if err != nil {
		return func() {}, err
	}
	suite.resolver = &resolver{}
	ctx, cancel := context.WithCancel(context.Background())
	if err := errors.Join(index.Add(ctx, mgr), (&csr.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("csr-approver"),
		APIServer: config.Host, Resolver: suite.resolver, RetryWaiting: time.Second,
	}).SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 10})); err != nil {
		cancel()
		return func() {}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	end := func() {
		cancel()
		if err := <-ended; err != nil {
			fmt.Fprintln(os.Stderr, "the manager ended:", err)
		}
	}
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return end, errors.New("the cache did not fill")
	}
	return end, nil
}
