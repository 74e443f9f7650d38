// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/index"
	"github.com/caplv/caplv/operator/webhook"
	"github.com/caplv/caplv/test/bench/controlplane"
)

const configDir = "../config"

// suite is a real API server that calls the webhooks of this process, as operator/config/default tells it to, while the
// manager has the rights that it is shipped with.
var suite struct {
	cp        *controlplane.ControlPlane
	manifests []byte
	server    *controlplane.WebhookServer
	// certs is the directory that the server reads, laid out as a kubelet mounts a Secret.
	certs string
	// account is the kubeconfig of the operator's service account.
	account string
	stop    func() error
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "caplv-webhook-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	err = setUp(ctx, dir)
	defer tearDown()
	if err != nil {
		fmt.Fprintln(os.Stderr, "setting up:", err)
		return 1
	}
	return m.Run()
}

func setUp(ctx context.Context, dir string) (err error) {
	if suite.cp, err = controlplane.Start(ctx, controlplane.Options{
		Dir: dir, CRDDir: filepath.Join(configDir, "crd"), WithoutCoreManager: true,
		AddToScheme: []func(*runtime.Scheme) error{infrav1.AddToScheme},
	}); err != nil {
		return err
	}
	if suite.manifests, err = suite.cp.KustomizeBuild(ctx, filepath.Join(configDir, "default")); err != nil {
		return err
	}
	others, err := controlplane.Except(suite.manifests, "ValidatingWebhookConfiguration", "Issuer", "Certificate")
	if err != nil {
		return err
	}
	if err := suite.cp.Apply(ctx, others); err != nil {
		return err
	}
	if suite.account, err = suite.cp.ServiceAccountKubeconfig(ctx, "caplv-system", "caplv-manager"); err != nil {
		return err
	}
	if err := createOldObjects(ctx); err != nil {
		return err
	}
	if suite.server, err = suite.cp.InstallWebhooks(ctx, suite.manifests); err != nil {
		return err
	}
	suite.certs = filepath.Join(dir, "certs")
	if err := mountSecret(suite.certs, suite.server.CertDir); err != nil {
		return err
	}
	return startManager()
}

func tearDown() {
	if suite.stop != nil {
		_ = suite.stop()
	}
	if suite.cp != nil {
		_ = suite.cp.Stop()
	}
}

// startManager starts a manager with nothing but the webhooks, and returns when they answer.
func startManager() error {
	config, err := clientcmd.BuildConfigFromFlags("", suite.account)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: suite.cp.Client().Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{Host: suite.server.Host, Port: suite.server.Port, CertDir: suite.certs}),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := errors.Join(index.Add(ctx, mgr), webhook.SetupWithManager(mgr)); err != nil {
		cancel()
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	suite.stop = func() error {
		cancel()
		return <-ended
	}
	deadline := time.Now().Add(time.Minute)
	for err = errors.New("not asked yet"); err != nil && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		err = mgr.GetWebhookServer().StartedChecker()(nil)
	}
	return err
}

// mountSecret lays out the files of from the way a kubelet mounts a Secret, or exchanges them like a kubelet: the names are
// links through one link that is replaced at once.
func mountSecret(dir, from string) error {
	version, err := os.MkdirTemp(filepath.Dir(dir), "version-")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"tls.crt", "tls.key"} {
		content, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(version, name), content, 0o600); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	link := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(version, link); err != nil {
		return err
	}
	return os.Rename(link, filepath.Join(dir, "..data"))
}

const machineYAML = `
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtMachine
metadata: {name: m, namespace: default}
spec:
  hostRef: {name: host}
  rootDisk: {size: 10Gi, storagePool: default, baseImage: rhcos.qcow2}
  network: {type: bridge, name: br0, addresses: ["192.0.2.50/24"], gateway: 192.0.2.1}
`

const hostYAML = `
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtHost
metadata: {name: h, namespace: default}
spec:
  uri: qemu+ssh://caplv@host.example.com/system
  secretRef: {name: key}
  hostKeyFingerprint: SHA256:uNiVztksCsDhcc0u9e8BrQXVUpKZIDTMczCvj3tD2sA
`

const clusterYAML = `
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtCluster
metadata: {name: c, namespace: default}
spec:
  controlPlaneEndpoint: {host: api.example.com, port: 6443}
`

// row is an object and what the API server says about it.
type row struct {
	name string
	// path and value are what is changed; a nil value removes the field.
	path  []string
	value any
	// want are parts of the message, the field first; none when the object must be accepted.
	want []string
}

func spec(path ...string) []string { return append([]string{"spec"}, path...) }

// check creates each row's object, as a dry run.
func check(t *testing.T, base string, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			g := NewWithT(t)
			err := suite.cp.Client().Create(t.Context(), changed(g, base, r.path, r.value), client.DryRunAll)
			if len(r.want) == 0 {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			for i, part := range r.want {
				if i == 0 {
					part += ": "
				}
				g.Expect(err).To(MatchError(ContainSubstring(part)))
			}
		})
	}
}

func changed(g Gomega, base string, path []string, value any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	g.Expect(yaml.Unmarshal([]byte(base), &u.Object)).To(Succeed())
	switch {
	case path == nil:
	case value == nil:
		unstructured.RemoveNestedField(u.Object, path...)
	default:
		g.Expect(unstructured.SetNestedField(u.Object, value, path...)).To(Succeed())
	}
	return u
}

// namespace makes a namespace for one test.
func namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "webhook-"}}
	NewWithT(t).Expect(suite.cp.Client().Create(t.Context(), ns)).To(Succeed())
	return ns.Name
}

// typed reads YAML into an object and puts it into a namespace.
func typed[T client.Object](g Gomega, manifest string, object T, namespace, name string) T {
	g.Expect(yaml.UnmarshalStrict([]byte(manifest), object)).To(Succeed())
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}
