// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/index"
	"github.com/caplv/caplv/operator/controller/node"
	"github.com/caplv/caplv/test/bench/controlplane"
)

const (
	configDir = "../../config"
	soon      = 10 * time.Second
)

// cp is a real API server, on which the reconciler works with the rights that the operator is shipped with.
var cp *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "caplv-node-")
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
		Dir: dir, CRDDir: filepath.Join(configDir, "crd"), WithoutCoreManager: true,
		AddToScheme: []func(*runtime.Scheme) error{infrav1.AddToScheme},
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

// startManager starts a manager with nothing but the reconciler of Nodes. The function that it returns ends it.
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
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: node.Slim}}},
	})
	if err != nil {
		return func() {}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	if err := errors.Join(index.Add(ctx, mgr), (&node.Reconciler{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("node")}).
		SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 10})); err != nil {
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

// bench is one machine whose domain runs, and its Node as soon as the test lets it join.
type bench struct {
	*WithT
	t  *testing.T
	c  client.Client
	lm *infrav1.LibvirtMachine
}

// newBench creates a machine that declares labels and annotations.
func newBench(t *testing.T, name string, labels, annotations map[string]string) *bench {
	t.Helper()
	b := &bench{WithT: NewWithT(t), t: t, c: cp.Client()}
	b.lm = &infrav1.LibvirtMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "prod"}},
		Spec: infrav1.LibvirtMachineSpec{
			ProviderID: "libvirt://h/" + name,
			HostRef:    infrav1.LibvirtHostReference{Name: "h"},
			RootDisk:   infrav1.RootDiskSpec{Size: resource.MustParse("10Mi"), StoragePool: "default", BaseImage: "base.qcow2"},
			Network:    infrav1.NetworkSpec{Type: infrav1.NetworkTypeBridge, Name: "br0", Addresses: []infrav1.AddressCIDR{"192.0.2.5/24"}},
			NodeLabels: labels, NodeAnnotations: annotations,
		},
	}
	b.create(b.lm)
	b.lm.Status.NodeName = "default-prod-" + name
	b.lm.Status.CreationStartedAt = new(metav1.Now())
	b.lm.Status.Initialization.Provisioned = new(true)
	b.Expect(b.c.Status().Update(t.Context(), b.lm)).To(Succeed())
	return b
}

// create creates an object for the time of the test.
func (b *bench) create(o client.Object) {
	b.t.Helper()
	b.Expect(b.c.Create(b.t.Context(), o)).To(Succeed())
	b.t.Cleanup(func() { b.Expect(client.IgnoreNotFound(b.c.Delete(context.Background(), o))).To(Succeed()) })
}

// join registers the Node, as a kubelet does.
func (b *bench) join(providerID string) {
	b.t.Helper()
	b.create(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: b.lm.Status.NodeName, Labels: map[string]string{"kubernetes.io/os": "linux"}},
		Spec:       corev1.NodeSpec{ProviderID: providerID},
	})
}

func (b *bench) node() *corev1.Node {
	n := &corev1.Node{}
	b.Expect(b.c.Get(b.t.Context(), client.ObjectKey{Name: b.lm.Status.NodeName}, n)).To(Succeed())
	return n
}

// changeNode changes the Node as somebody else.
func (b *bench) changeNode(change func(*corev1.Node)) {
	b.t.Helper()
	n := b.node()
	base := n.DeepCopy()
	change(n)
	b.Expect(b.c.Patch(b.t.Context(), n, client.MergeFrom(base))).To(Succeed())
}

// change changes the machine.
func (b *bench) change(change func(*infrav1.LibvirtMachine)) {
	b.t.Helper()
	b.Expect(b.c.Get(b.t.Context(), client.ObjectKeyFromObject(b.lm), b.lm)).To(Succeed())
	base := b.lm.DeepCopy()
	change(b.lm)
	b.Expect(b.c.Patch(b.t.Context(), b.lm, client.MergeFrom(base))).To(Succeed())
}

// expectCondition waits for STATUS/REASON of a condition of the machine, and returns its message. Empty means no condition.
func (b *bench) expectCondition(conditionType, want string) string {
	b.t.Helper()
	b.Eventually(func() string {
		b.Expect(b.c.Get(b.t.Context(), client.ObjectKeyFromObject(b.lm), b.lm)).To(Succeed())
		c := conditions.Get(b.lm, conditionType)
		if c == nil {
			return ""
		}
		return string(c.Status) + "/" + c.Reason
	}, soon, 50*time.Millisecond).Should(Equal(want))
	return conditions.GetMessage(b.lm, conditionType)
}

// expectNode waits until the Node is as a test says.
func (b *bench) expectNode(matcher func(Gomega, *corev1.Node)) {
	b.t.Helper()
	b.Eventually(func(g Gomega) { matcher(g, b.node()) }, soon, 50*time.Millisecond).Should(Succeed())
}

// expectEvent waits for an Event about the machine.
func (b *bench) expectEvent(reason string) {
	b.t.Helper()
	b.Eventually(func() []string {
		list := &eventsv1.EventList{}
		b.Expect(b.c.List(b.t.Context(), list)).To(Succeed())
		var reasons []string
		for i := range list.Items {
			if list.Items[i].Regarding.UID == b.lm.UID {
				reasons = append(reasons, list.Items[i].Reason)
			}
		}
		return reasons
	}, soon, 100*time.Millisecond).Should(ContainElement(reason))
}
