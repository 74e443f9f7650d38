// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/csr"
	"github.com/caplv/caplv/operator/controller/host"
	"github.com/caplv/caplv/operator/controller/index"
	"github.com/caplv/caplv/operator/controller/node"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/job"
	"github.com/caplv/caplv/operator/setup"
	"github.com/caplv/caplv/operator/virsh"
	"github.com/caplv/caplv/test/bench/controlplane"
)

// fleetWorkers is the manager's default of --max-concurrent-reconciles.
const fleetWorkers = 50

// probedHost is a host in memory that can also be probed.
type probedHost struct{ *fakeHost }

func (probedHost) HostKeyFingerprint() string                       { return "SHA256:x" }
func (probedHost) ProbeHelper(context.Context) (setup.Facts, error) { return setup.Facts{}, nil }
func (probedHost) ProbeSession(context.Context, string) error       { return nil }
func (probedHost) Probe(context.Context, string) (virsh.Hypervisor, error) {
	return virsh.Hypervisor{LibvirtVersion: "9.0.0", HypervisorVersion: "7.2.0", CPUs: 8, MemoryMiB: 16384}, nil
}

// fleet is a real API server and the real reconcilers, over hosts that a test gives it.
type fleet struct {
	*WithT
	t *testing.T
	c client.Client
	// config is the administrator's connection.
	config *rest.Config
}

// newFleet starts it. lag slows down what the reconcilers read.
func newFleet(t *testing.T, lag time.Duration, connect func(secrets client.Reader) hosts.Connector) *fleet {
	t.Helper()
	return startFleet(t, fleetOptions{lag: lag, workers: fleetWorkers}, connect)
}

// fleetOptions are how the reconcilers of a fleet run.
type fleetOptions struct {
	lag     time.Duration
	workers int
	// shippedRights has them run as the service account, with the roles, that the operator is shipped with.
	shippedRights bool
	// whole adds Cluster API's own manager, and the reconcilers of Nodes and of certificates.
	whole bool
}

func startFleet(t *testing.T, o fleetOptions, connect func(secrets client.Reader) hosts.Connector) *fleet {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	f := &fleet{WithT: NewWithT(t), t: t}
	cp, err := controlplane.Start(t.Context(), controlplane.Options{
		Dir: t.TempDir(), CRDDir: filepath.Join("..", "..", "config", "crd"), WithoutCoreManager: !o.whole,
		AddToScheme: []func(*runtime.Scheme) error{infrav1.AddToScheme},
	})
	f.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = cp.Stop() })
	f.c, f.config = cp.Client(), cp.RESTConfig()

	config := cp.RESTConfig()
	if o.shippedRights {
		config = f.shippedRights(cp)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: f.c.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		Cache: cache.Options{DefaultTransform: func(object any) (any, error) {
			time.Sleep(o.lag)
			return object, nil
		}},
	})
	f.Expect(err).NotTo(HaveOccurred())
	connector := connect(mgr.GetAPIReader())
	f.Expect(index.Add(t.Context(), mgr)).To(Succeed())
	options := controller.Options{MaxConcurrentReconciles: o.workers, SkipNameValidation: new(true)}
	f.Expect((&host.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Hosts: connector, Recorder: mgr.GetEventRecorder("host"), Jobs: job.New(t.Context())}).
		SetupWithManager(mgr, options)).To(Succeed())
	f.Expect((&Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Hosts: connector, Jobs: job.New(t.Context()), Recorder: mgr.GetEventRecorder("machine"),
	}).SetupWithManager(t.Context(), mgr, options)).To(Succeed())
	if o.whole {
		f.Expect((&node.Reconciler{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("node")}).SetupWithManager(t.Context(), mgr, options)).To(Succeed())
		f.Expect((&csr.Reconciler{
			Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("csr-approver"), APIServer: config.Host, RetryWaiting: time.Second,
		}).SetupWithManager(t.Context(), mgr, options)).To(Succeed())
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		f.Expect(<-done).To(Succeed())
	})
	return f
}

// shippedRights installs the operator's roles, and returns a connection as its service account.
func (f *fleet) shippedRights(cp *controlplane.ControlPlane) *rest.Config {
	manifests, err := cp.KustomizeBuild(f.t.Context(), filepath.Join("..", "..", "config", "default"))
	f.Expect(err).NotTo(HaveOccurred())
	others, err := controlplane.Except(manifests, "ValidatingWebhookConfiguration", "Issuer", "Certificate")
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(cp.Apply(f.t.Context(), others)).To(Succeed())
	path, err := cp.ServiceAccountKubeconfig(f.t.Context(), "caplv-system", "caplv-manager")
	f.Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.BuildConfigFromFlags("", path)
	f.Expect(err).NotTo(HaveOccurred())
	config.QPS = -1
	return config
}

func (f *fleet) create(o client.Object) {
	f.t.Helper()
	f.Expect(f.c.Create(f.t.Context(), o)).To(Succeed())
}

// setStatus creates an object together with its status.
func (f *fleet) setStatus(o client.Object, change func()) {
	f.t.Helper()
	f.create(o)
	change()
	f.Expect(f.c.Status().Update(f.t.Context(), o)).To(Succeed())
}

func fleetMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "prod"}}
}

// prepare creates the Cluster and the Secrets.
func (f *fleet) prepare() {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	f.Expect(err).NotTo(HaveOccurred())
	block, err := ssh.MarshalPrivateKey(private, "")
	f.Expect(err).NotTo(HaveOccurred())
	f.create(&corev1.Secret{ObjectMeta: fleetMeta("ssh"), Data: map[string][]byte{infrav1.SSHPrivateKeySecretKey: pem.EncodeToMemory(block)}})
	f.create(&corev1.Secret{ObjectMeta: fleetMeta("boot"), Data: map[string][]byte{"value": []byte(`{"ignition":{"version":"3.2.0"}}`)}})
	endpoint := clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}
	lc := &infrav1.LibvirtCluster{ObjectMeta: fleetMeta("prod"), Spec: infrav1.LibvirtClusterSpec{ControlPlaneEndpoint: endpoint}}
	f.setStatus(lc, func() {
		lc.Status.Initialization.Provisioned = new(true)
		conditions.Set(lc, metav1.Condition{Type: infrav1.ClusterReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready"})
	})
	cluster := &clusterv1.Cluster{ObjectMeta: fleetMeta("prod"), Spec: clusterv1.ClusterSpec{
		ControlPlaneEndpoint: endpoint,
		InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtCluster", Name: "prod"},
	}}
	f.setStatus(cluster, func() { cluster.Status.Initialization.InfrastructureProvisioned = new(true) })
}

// addHost creates a LibvirtHost.
func (f *fleet) addHost(name, address string) {
	f.t.Helper()
	f.create(&infrav1.LibvirtHost{ObjectMeta: fleetMeta(name), Spec: infrav1.LibvirtHostSpec{
		URI: "qemu+ssh://a@" + address + "/system", SecretRef: infrav1.LocalSecretReference{Name: "ssh"},
		HostKeyFingerprint: "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", VirtType: infrav1.VirtTypeQEMU,
	}})
}

// addMachine creates a Machine and its LibvirtMachine. It may be called concurrently.
func (f *fleet) addMachine(name, lhost string) error { return f.addMachineAs(name, lhost, nil) }

// addMachineAs is addMachine for a LibvirtMachine that is changed first.
func (f *fleet) addMachineAs(name, lhost string, change func(*infrav1.LibvirtMachine)) error {
	owner := &clusterv1.Machine{ObjectMeta: fleetMeta(name), Spec: clusterv1.MachineSpec{
		ClusterName: "prod", Bootstrap: clusterv1.Bootstrap{DataSecretName: new("boot")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtMachine", Name: name},
	}}
	if err := f.c.Create(f.t.Context(), owner); err != nil {
		return err
	}
	lm := &infrav1.LibvirtMachine{ObjectMeta: fleetMeta(name), Spec: newObjects().lmachine.Spec}
	lm.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: owner.UID}}
	lm.Spec.HostRef.Name = lhost
	if change != nil {
		change(lm)
	}
	return f.c.Create(f.t.Context(), lm)
}

// states counts STATUS/REASON of a condition over the LibvirtMachines whose name begins with prefix.
func (f *fleet) states(prefix, conditionType string) map[string]int {
	machines := &infrav1.LibvirtMachineList{}
	f.Expect(f.c.List(f.t.Context(), machines)).To(Succeed())
	states := map[string]int{}
	for i := range machines.Items {
		lm := &machines.Items[i]
		if !strings.HasPrefix(lm.Name, prefix) {
			continue
		}
		state := "none"
		if c := conditions.Get(lm, conditionType); c != nil {
			state = string(c.Status) + "/" + c.Reason
		}
		states[state]++
	}
	return states
}
