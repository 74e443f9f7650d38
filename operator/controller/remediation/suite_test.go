// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package remediation_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	controlplanev1 "github.com/caplv/caplv/api/controlplane/v1alpha1"
	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	controlplanereconciler "github.com/caplv/caplv/operator/controller/controlplane"
	"github.com/caplv/caplv/operator/controller/remediation"
	"github.com/caplv/caplv/test/bench/controlplane"
)

const (
	configDir = "../../config"
	soon      = 30 * time.Second
	poll      = 100 * time.Millisecond
)

// cp is a real API server with the real Cluster API core, beside which the reconciler works with the rights that it is
// shipped with. LibvirtExternalControlPlanes are reconciled too, since without them no MachineHealthCheck acts.
var cp *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	flag.Parse()
	// The tests wait for Cluster API most of the time.
	if err := flag.Set("test.parallel", "10"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "caplv-remediation-")
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
	if cp, err = controlplane.Start(ctx, controlplane.Options{
		Dir: dir, CRDDir: filepath.Join(configDir, "crd"),
		CRDs:        []*apiextensionsv1.CustomResourceDefinition{standIn("StandInMachine"), standIn("StandInMachineTemplate")},
		AddToScheme: []func(*runtime.Scheme) error{infrav1.AddToScheme, controlplanev1.AddToScheme},
	}); err != nil {
		return stop, err
	}
	stop = func() { _ = cp.Stop() }
	manifests, err := cp.KustomizeBuild(ctx, filepath.Join(configDir, "default"))
	if err != nil {
		return stop, err
	}
	others, err := controlplane.Except(manifests, "ValidatingWebhookConfiguration", "Issuer", "Certificate")
	if err != nil {
		return stop, err
	}
	if err := cp.Apply(ctx, others); err != nil {
		return stop, err
	}
	end, err := startManager(ctx)
	return func() {
		end()
		_ = cp.Stop()
	}, err
}

// standIn is the CRD of an infrastructure kind that nobody reconciles. MachineSets make their machines of it.
func standIn(kind string) *apiextensionsv1.CustomResourceDefinition {
	plural := strings.ToLower(kind) + "s"
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + infrav1.GroupVersion.Group, Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1alpha1"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: infrav1.GroupVersion.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1alpha1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}},
			}},
		},
	}
}

// startManager starts a manager with the two reconcilers. The function that it returns ends it.
func startManager(ctx context.Context) (func(), error) {
	path, err := cp.ServiceAccountKubeconfig(ctx, "caplv-system", "caplv-manager")
	if err != nil {
		return func() {}, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return func() {}, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: cp.Client().Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Logger: logr.Discard(),
	})
	if err != nil {
		return func() {}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	many := controller.Options{MaxConcurrentReconciles: 10}
	if err := errors.Join(
		(&remediation.Reconciler{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("remediation")}).SetupWithManager(ctx, mgr, many),
		(&controlplanereconciler.Reconciler{
			Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Config: mgr.GetConfig(), Recorder: mgr.GetEventRecorder("controlplane"),
			ServiceAccount: types.NamespacedName{Namespace: "caplv-system", Name: "caplv-cluster-api"},
		}).SetupWithManager(ctx, mgr, many),
	); err != nil {
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
