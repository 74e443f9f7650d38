// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/ansibletest"
	"github.com/caplv/caplv/operator/controller/index"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/job"
	"github.com/caplv/caplv/test/bench/controlplane"
)

// setUpConnector connects to a host once it is set up.
type setUpConnector struct {
	mu sync.Mutex
	ok bool
}

func (c *setUpConnector) Connect(context.Context, *infrav1.LibvirtHost) (hosts.Host, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ok {
		return nil, hosts.NewConfigError(infrav1.UnauthorizedReason, "the host does not know the account")
	}
	return &usableHost{}, nil
}
func (*setUpConnector) Forget(client.ObjectKey) {}

func (c *setUpConnector) setUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ok = true
}

// server is a real API server, and operators that can be started and ended.
type server struct {
	*WithT
	t         *testing.T
	cp        *controlplane.ControlPlane
	backend   *ansibletest.Backend
	connector *setUpConnector
	runners   *runners
}

// start runs an operator until the returned function is called.
func (s *server) start() (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	mgr, err := ctrl.NewManager(s.cp.RESTConfig(), ctrl.Options{
		Scheme: s.cp.Client().Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(index.Add(ctx, mgr)).To(Succeed())
	r := &Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Hosts: s.connector, Recorder: mgr.GetEventRecorder("host"), Runners: s.runners, Jobs: job.New(ctx),
	}
	s.Expect(r.SetupWithManager(mgr, controller.Options{MaxConcurrentReconciles: 4, SkipNameValidation: new(true)})).To(Succeed())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		s.Expect(<-done).To(Succeed())
	})
}

// expect waits for a condition, as STATUS/REASON.
func (s *server) expect(conditionType, want string) *infrav1.LibvirtHost {
	s.t.Helper()
	lh := &infrav1.LibvirtHost{}
	s.Eventually(func(g Gomega) {
		g.Expect(s.cp.Client().Get(s.t.Context(), key, lh)).To(Succeed())
		c := conditions.Get(lh, conditionType)
		g.Expect(c).NotTo(BeNil())
		g.Expect(fmt.Sprintf("%s/%s", c.Status, c.Reason)).To(Equal(want), "%v", lh.Status.Conditions)
	}, 20*time.Second, 50*time.Millisecond).Should(Succeed())
	return lh
}

// untilKeys waits until there were that many runs, and returns the key of the last.
func (s *server) untilKeys(n int) string {
	s.t.Helper()
	s.Eventually(s.backend.Keys, 20*time.Second, 20*time.Millisecond).Should(HaveLen(n))
	return s.backend.Keys()[n-1]
}

func TestAHostIsSetUpThroughARealAPIServerAndRestarts(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	s := &server{WithT: NewWithT(t), t: t, backend: ansibletest.New(), connector: &setUpConnector{}}
	s.runners = &runners{backend: s.backend, pair: newPair(t)}
	cp, err := controlplane.Start(t.Context(), controlplane.Options{
		Dir: t.TempDir(), CRDDir: filepath.Join("..", "..", "config", "crd"), WithoutCoreManager: true,
		AddToScheme: []func(*runtime.Scheme) error{infrav1.AddToScheme},
	})
	s.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = cp.Stop() })
	s.cp = cp
	stop := s.start()
	defer func() { stop() }()

	meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: loginSecret}
	s.Expect(cp.Client().Create(t.Context(), &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{infrav1.SSHPrivateKeySecretKey: s.runners.pair.Private}})).To(Succeed())
	lh := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: infrav1.LibvirtHostSpec{
		URI: "qemu+ssh://caplv@b/session", SecretRef: infrav1.LocalSecretReference{Name: accountSecret},
		Bootstrap: &infrav1.HostBootstrap{SecretRef: infrav1.LocalSecretReference{Name: loginSecret}, OffboardOnDelete: true},
	}}
	s.Expect(cp.Client().Create(t.Context(), lh)).To(Succeed())
	first := s.untilKeys(1)
	s.backend.Task(first, "Libvirt is installed", 34, 120)
	s.expect(infrav1.BootstrappedCondition, "False/"+infrav1.BootstrapRunningReason)
	s.expect(infrav1.HostReadyCondition, "False/"+infrav1.WaitingForBootstrapReason)

	stop()
	s.connector.setUp()
	// The longest texts that a backend may send pass the schema.
	long := strings.Repeat("ä", 4000)
	s.backend.End(first, ansible.HostResult{Phase: ansible.Succeeded, OK: 120, Changed: 40, ChangedTasks: []string{long, long, long}, Message: long, FailedTask: long})
	stop = s.start()
	s.expect(infrav1.BootstrappedCondition, "True/"+infrav1.BootstrappedReason)
	s.expect(infrav1.HostReadyCondition, "True/"+infrav1.HostReadyReason)
	s.Expect(s.backend.Keys()).To(HaveLen(1), "the second operator has gone on with the run of the first")
	out, err := cp.Kubectl(t.Context(), "get", "lvh", key.Name)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(out).To(And(ContainSubstring("BOOTSTRAPPED"), ContainSubstring("Bootstrapped")))

	_, err = cp.Kubectl(t.Context(), "annotate", "lvh", key.Name, infrav1.CheckNowAnnotation+"=1")
	s.Expect(err).NotTo(HaveOccurred())
	s.backend.End(s.untilKeys(2), drift)
	s.expect(infrav1.DriftedCondition, "True/"+infrav1.DriftedReason)

	s.Expect(cp.Client().Delete(t.Context(), lh)).To(Succeed())
	offboard := s.untilKeys(3)
	s.expect(infrav1.HostReadyCondition, "False/"+infrav1.OffboardingReason)
	s.Consistently(func() error { return cp.Client().Get(t.Context(), key, &infrav1.LibvirtHost{}) }, time.Second).Should(Succeed())
	s.backend.End(offboard, ansible.HostResult{Phase: ansible.Succeeded})
	s.Eventually(func() bool { return apierrors.IsNotFound(cp.Client().Get(t.Context(), key, &infrav1.LibvirtHost{})) }, 20*time.Second).Should(BeTrue())
	s.Expect(s.backend.Keys()).To(HaveLen(3))
}
