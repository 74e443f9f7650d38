// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	controlplanev1 "github.com/caplv/caplv/api/controlplane/v1alpha1"
	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	reconciler "github.com/caplv/caplv/operator/controller/controlplane"
	"github.com/caplv/caplv/test/bench/controlplane"
)

const (
	configDir = "../../config"
	soon      = 20 * time.Second
	account   = "system:serviceaccount:caplv-system:caplv-cluster-api"
)

// suite is a real API server with the real Cluster API core, beside which the reconciler works with the rights that it is
// shipped with.
var suite struct {
	cp     *controlplane.ControlPlane
	config *rest.Config
	audit  string
	// ahead is by how much the reconciler's clock is ahead.
	ahead atomic.Int64
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	flag.Parse()
	// The tests wait for Cluster API most of the time.
	if err := flag.Set("test.parallel", "10"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "caplv-controlplane-")
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
	// Everything that Cluster API asks the API server for with its token is written down.
	policy := filepath.Join(dir, "audit-policy.yaml")
	suite.audit = filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(`{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[
		{"level":"Metadata","users":["`+account+`"]},{"level":"None"}]}`), 0o600); err != nil {
		return stop, err
	}
	var err error
	if suite.cp, err = controlplane.Start(ctx, controlplane.Options{
		Dir: dir, CRDDir: filepath.Join(configDir, "crd"),
		AddToScheme:    []func(*runtime.Scheme) error{infrav1.AddToScheme, controlplanev1.AddToScheme},
		APIServerFlags: map[string][]string{"audit-policy-file": {policy}, "audit-log-path": {suite.audit}, "audit-log-mode": {"blocking"}},
	}); err != nil {
		return stop, err
	}
	stop = func() { _ = suite.cp.Stop() }
	manifests, err := suite.cp.KustomizeBuild(ctx, filepath.Join(configDir, "default"))
	if err != nil {
		return stop, err
	}
	others, err := controlplane.Except(manifests, "ValidatingWebhookConfiguration", "Issuer", "Certificate")
	if err != nil {
		return stop, err
	}
	if err := suite.cp.Apply(ctx, others); err != nil {
		return stop, err
	}
	end, err := startManager(ctx)
	return func() {
		end()
		_ = suite.cp.Stop()
	}, err
}

// startManager starts a manager with nothing but this reconciler. The function that it returns ends it.
func startManager(ctx context.Context) (func(), error) {
	path, err := suite.cp.ServiceAccountKubeconfig(ctx, "caplv-system", "caplv-manager")
	if err != nil {
		return func() {}, err
	}
	if suite.config, err = clientcmd.BuildConfigFromFlags("", path); err != nil {
		return func() {}, err
	}
	mgr, err := ctrl.NewManager(suite.config, ctrl.Options{
		Scheme: suite.cp.Client().Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Logger: logr.Discard(),
	})
	if err != nil {
		return func() {}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	if err := (&reconciler.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Config: mgr.GetConfig(), Recorder: mgr.GetEventRecorder("controlplane"),
		ServiceAccount: types.NamespacedName{Namespace: "caplv-system", Name: "caplv-cluster-api"},
		Clock:          func() time.Time { return time.Now().Add(time.Duration(suite.ahead.Load())) },
	}).SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 10}); err != nil {
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

// bench is a Cluster with its LibvirtCluster and control plane, in a namespace of its own.
type bench struct {
	*WithT
	t         *testing.T
	c         client.Client
	namespace string
	cluster   *clusterv1.Cluster
	cp        *controlplanev1.LibvirtExternalControlPlane
}

var numbers atomic.Int32

// newBench creates the objects. Whatever prepare creates is there before.
func newBench(t *testing.T, spec controlplanev1.LibvirtExternalControlPlaneSpec, prepare func(*bench)) *bench {
	t.Helper()
	b := &bench{WithT: NewWithT(t), t: t, c: suite.cp.Client(), namespace: "ns-" + strconv.Itoa(int(numbers.Add(1)))}
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}})
	if prepare != nil {
		prepare(b)
	}
	meta := metav1.ObjectMeta{Namespace: b.namespace, Name: "prod"}
	b.cp = &controlplanev1.LibvirtExternalControlPlane{ObjectMeta: meta, Spec: spec}
	b.create(b.cp)
	endpoint := clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}
	lc := &infrav1.LibvirtCluster{ObjectMeta: meta, Spec: infrav1.LibvirtClusterSpec{ControlPlaneEndpoint: endpoint}}
	b.create(lc)
	lc.Status.Initialization.Provisioned = new(true)
	conditions.Set(lc, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Posted"})
	b.Expect(b.c.Status().Update(t.Context(), lc)).To(Succeed())
	b.cluster = &clusterv1.Cluster{ObjectMeta: meta, Spec: clusterv1.ClusterSpec{
		ControlPlaneEndpoint: endpoint,
		InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtCluster", Name: "prod"},
		ControlPlaneRef:      clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "LibvirtExternalControlPlane", Name: "prod"},
	}}
	b.create(b.cluster)
	return b
}

func (b *bench) create(o client.Object) {
	b.t.Helper()
	b.Expect(b.c.Create(b.t.Context(), o)).To(Succeed())
}

// read reads an object as it is now.
func (b *bench) read(o client.Object) error {
	return b.c.Get(b.t.Context(), client.ObjectKeyFromObject(o), o)
}

// expectCondition waits for STATUS/REASON of a condition of an object, and returns its message.
func (b *bench) expectCondition(o interface {
	client.Object
	conditions.Getter
}, conditionType, want string,
) string {
	b.t.Helper()
	b.Eventually(func() (string, error) {
		if err := b.read(o); err != nil {
			return "", err
		}
		condition := conditions.Get(o, conditionType)
		if condition == nil {
			return "", nil
		}
		return string(condition.Status) + "/" + condition.Reason, nil
	}, soon, 50*time.Millisecond).Should(Equal(want), func() string { return conditionType + ": " + conditions.GetMessage(o, conditionType) })
	return conditions.GetMessage(o, conditionType)
}

// poke makes the reconciler look again now, not within a minute.
func (b *bench) poke() {
	b.t.Helper()
	b.patch(b.cp, func() { metav1.SetMetaDataAnnotation(&b.cp.ObjectMeta, "poke", time.Now().String()) })
}

func (b *bench) patch(o client.Object, change func()) {
	b.t.Helper()
	b.Expect(b.read(o)).To(Succeed())
	base, ok := o.DeepCopyObject().(client.Object)
	b.Expect(ok).To(BeTrue())
	change()
	b.Expect(b.c.Patch(b.t.Context(), o, client.MergeFrom(base))).To(Succeed())
}

// kubeconfig is the Secret.
func (b *bench) kubeconfig() (*corev1.Secret, error) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "prod-kubeconfig"}}
	return s, b.read(s)
}

// token is that of the Secret's kubeconfig; empty while there is none.
func (b *bench) token() string {
	s, err := b.kubeconfig()
	if err != nil {
		return ""
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(s.Data["value"])
	if err != nil {
		return ""
	}
	return config.BearerToken
}

// machine creates a Machine with its LibvirtMachine, as they are when the domain runs, and the Node of its kubelet.
func (b *bench) machine(name string) (*clusterv1.Machine, *corev1.Node) {
	b.t.Helper()
	providerID := "libvirt://h/" + b.namespace + "-" + name
	meta := metav1.ObjectMeta{Namespace: b.namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "prod", "role": name}}
	lm := &infrav1.LibvirtMachine{ObjectMeta: meta, Spec: infrav1.LibvirtMachineSpec{
		ProviderID: providerID,
		HostRef:    infrav1.LibvirtHostReference{Name: "h"},
		RootDisk:   infrav1.RootDiskSpec{Size: resource.MustParse("10Mi"), StoragePool: "default", BaseImage: "base.qcow2"},
		Network:    infrav1.NetworkSpec{Type: infrav1.NetworkTypeBridge, Name: "br0", Addresses: []infrav1.AddressCIDR{"192.0.2.5/24"}},
	}}
	b.create(lm)
	lm.Status.Initialization.Provisioned = new(true)
	conditions.Set(lm, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Running"})
	b.Expect(b.c.Status().Update(b.t.Context(), lm)).To(Succeed())
	m := &clusterv1.Machine{ObjectMeta: meta, Spec: clusterv1.MachineSpec{
		ClusterName:       "prod",
		Bootstrap:         clusterv1.Bootstrap{DataSecretName: new("bootstrap")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtMachine", Name: name},
	}}
	b.create(m)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.namespace + "-" + name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	b.create(node)
	b.setNodeReady(node, corev1.ConditionTrue)
	return m, node
}

func (b *bench) setNodeReady(node *corev1.Node, status corev1.ConditionStatus) {
	b.t.Helper()
	b.Expect(b.read(node)).To(Succeed())
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: status, Reason: "Posted", LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute)),
	}}
	b.Expect(b.c.Status().Update(b.t.Context(), node)).To(Succeed())
}
