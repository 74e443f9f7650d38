// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	infraGroup = "infrastructure.cluster.x-k8s.io"
	soon       = 60 * time.Second
)

// standIn is the CRD of an infrastructure kind that no provider reconciles.
func standIn(kind string) *apiextensionsv1.CustomResourceDefinition {
	plural := strings.ToLower(kind) + "s"
	anything := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + infraGroup, Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1alpha1"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: infraGroup,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1alpha1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &anything,
				}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}

func infraRef(kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: infraGroup, Kind: kind, Name: name}
}

func machine(name, version string) *clusterv1.Machine {
	secret := "bootstrap"
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: clusterv1.MachineSpec{
			ClusterName: "c1", Version: version,
			Bootstrap:         clusterv1.Bootstrap{DataSecretName: &secret},
			InfrastructureRef: infraRef("FakeMachine", name),
		},
	}
}

func TestControlPlane(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	start := time.Now()
	cp, err := Start(ctx, Options{
		Dir:  t.TempDir(),
		CRDs: []*apiextensionsv1.CustomResourceDefinition{standIn("FakeCluster"), standIn("FakeMachine")},
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Logf("etcd, kube-apiserver and the Cluster API manager were ready after %s", time.Since(start).Round(time.Millisecond))
	t.Cleanup(func() { NewWithT(t).Expect(cp.Stop()).To(Succeed()) })

	t.Run("Cluster API's manager reconciles a Cluster and its Machine", func(t *testing.T) { testReconciles(t, cp) })
	t.Run("Cluster API's webhook refuses a Machine with a version that is none", func(t *testing.T) {
		g := NewWithT(t)
		err := cp.Client().Create(ctx, machine("bad", "latest"))
		g.Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
	})
	t.Run("a service account's kubeconfig authenticates and has no rights of its own", func(t *testing.T) { testServiceAccount(t, cp) })
	t.Run("a CustomResourceDefinition and its first object can be applied together", func(t *testing.T) { testApply(t, cp) })
	t.Run("webhooks are directed to a local address with a certificate", func(t *testing.T) { testWebhooks(t, cp) })
	t.Run("kubectl speaks for the administrator and reports what it is told", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(cp.Kubectl(ctx, "auth", "whoami", "-o", "jsonpath={.status.userInfo.groups}")).To(ContainSubstring("system:masters"))
		_, err := cp.Kubectl(ctx, "get", "secret", "absent")
		g.Expect(err).To(MatchError(ContainSubstring(`secrets "absent" not found`)))
	})
	t.Run("a process beside it is logged, and ends when it is asked to", func(t *testing.T) {
		g := NewWithT(t)
		p, err := cp.StartProcess("sleeper", "/bin/sh", []string{"WORD=hello"}, "-c", "echo $WORD; exec sleep 3600")
		g.Expect(err).NotTo(HaveOccurred())
		g.Eventually(func() ([]byte, error) { return os.ReadFile(p.LogPath) }, soon).Should(BeEquivalentTo("hello\n"))
		g.Expect(p.Stop()).To(Succeed())
		g.Expect(syscall.Kill(p.Pid(), 0)).To(MatchError(syscall.ESRCH))
	})
}

func testReconciles(t *testing.T, cp *ControlPlane) {
	g := NewWithT(t)
	ctx, c := t.Context(), cp.Client()
	for kind, name := range map[string]string{"FakeCluster": "c1", "FakeMachine": "m1"} {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(infraGroup + "/v1alpha1")
		u.SetKind(kind)
		u.SetNamespace("default")
		u.SetName(name)
		g.Expect(c.Create(ctx, u)).To(Succeed())
	}
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"},
		Spec:       clusterv1.ClusterSpec{InfrastructureRef: infraRef("FakeCluster", "c1")},
	}
	g.Expect(c.Create(ctx, cluster)).To(Succeed())
	m := machine("m1", "v1.37.2")
	g.Expect(c.Create(ctx, m)).To(Succeed())

	g.Eventually(func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
		g.Expect(cluster.Finalizers).To(ContainElement(clusterv1.ClusterFinalizer))
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		g.Expect(m.Status.Phase).To(Equal(string(clusterv1.MachinePhasePending)))
	}, soon).Should(Succeed())

	old := &unstructured.Unstructured{}
	old.SetAPIVersion("cluster.x-k8s.io/v1beta1")
	old.SetKind("Machine")
	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(m), old)).To(Succeed(), "the conversion webhook answers")
}

func testServiceAccount(t *testing.T, cp *ControlPlane) {
	g := NewWithT(t)
	ctx := t.Context()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "manager"}}
	g.Expect(cp.Client().Create(ctx, account)).To(Succeed())
	path, err := cp.ServiceAccountKubeconfig(ctx, "default", "manager")
	g.Expect(err).NotTo(HaveOccurred())
	for _, file := range []string{path, cp.Kubeconfig()} {
		info, err := os.Stat(file)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)), file)
	}

	g.Expect(cp.Kubectl(ctx, "--kubeconfig="+path, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")).
		To(Equal("system:serviceaccount:default:manager"))
	config, err := clientcmd.BuildConfigFromFlags("", path)
	g.Expect(err).NotTo(HaveOccurred())
	clientset, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = clientset.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)

	_, err = cp.ServiceAccountKubeconfig(ctx, "default", "absent")
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
}

func testApply(t *testing.T, cp *ControlPlane) {
	g := NewWithT(t)
	dir := t.TempDir()
	write := func(name, content string) {
		g.Expect(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600)).To(Succeed())
	}
	write("kustomization.yaml", "namePrefix: our-\nresources: [crd.yaml, object.yaml]\n")
	write("object.yaml", "apiVersion: example.com/v1\nkind: Lamp\nmetadata: {name: lamp, namespace: default}\n")
	write("crd.yaml", `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: lamps, singular: lamp, kind: Lamp, listKind: LampList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`)
	built, err := cp.KustomizeBuild(t.Context(), dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cp.Apply(t.Context(), built)).To(Succeed())
	g.Expect(cp.Apply(t.Context(), built)).To(Succeed(), "applying the same again changes nothing")
	g.Expect(cp.Kubectl(t.Context(), "get", "lamps", "-o", "name")).To(Equal("lamp.example.com/our-lamp\n"))

	g.Expect(cp.Apply(t.Context(), []byte("{kind: Nonsense"))).NotTo(Succeed())
}

func testWebhooks(t *testing.T, cp *ControlPlane) {
	g := NewWithT(t)
	_, err := cp.InstallWebhooks(t.Context(), []byte("kind: ConfigMap\n"))
	g.Expect(err).To(MatchError(ContainSubstring("no webhook configuration")))

	server, err := cp.InstallWebhooks(t.Context(), []byte(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: lamps}
webhooks:
- name: lamps.example.com
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: lamps, namespace: default, path: /validate}}
  rules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [lamps]}]
  sideEffects: None
`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(filepath.Join(server.CertDir, "tls.crt")).To(BeAnExistingFile())
	// Nothing listens there: the refusal shows that the API server calls this address.
	err = cp.Apply(t.Context(), []byte("apiVersion: example.com/v1\nkind: Lamp\nmetadata: {name: second, namespace: default}\n"))
	g.Expect(err).To(MatchError(ContainSubstring("/validate")))
	g.Expect(err).To(MatchError(ContainSubstring("connection refused")))
}

func TestClusterAPIsKindsCanBeUsedWithoutItsManager(t *testing.T) {
	g := NewWithT(t)
	cp, err := Start(t.Context(), Options{Dir: t.TempDir(), CRDDir: "../../../operator/config/crd/bases", WithoutCoreManager: true})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(cp.Stop()).To(Succeed()) })
	g.Expect(cp.Client().Create(t.Context(), machine("m1", "v1.37.2"))).To(Succeed())
	g.Expect(cp.Kubectl(t.Context(), "get", "libvirthosts,libvirtclusters,libvirtmachines")).To(BeEmpty())
}

func TestStartSaysWhyTheAPIServerDidNotStart(t *testing.T) {
	g := NewWithT(t)
	_, err := Start(context.Background(), Options{
		Dir:                t.TempDir(),
		WithoutCoreManager: true,
		APIServerFlags:     map[string][]string{"no-such-flag": {"true"}},
	})
	g.Expect(err).To(MatchError(ContainSubstring("unknown flag: --no-such-flag")))
}

func TestExceptLeavesOutKinds(t *testing.T) {
	g := NewWithT(t)
	kept, err := Except([]byte("kind: Issuer\n---\nkind: Service\nmetadata: {name: a}\n---\nkind: Certificate\n---\nkind: Service\nmetadata: {name: b}\n"), "Issuer", "Certificate")
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := decodeYAML(kept)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveLen(2))
	for i, name := range []string{"a", "b"} {
		g.Expect(objects[i].GetKind()).To(Equal("Service"))
		g.Expect(objects[i].GetName()).To(Equal(name))
	}
	_, err = Except([]byte("{kind: Nonsense"))
	g.Expect(err).To(HaveOccurred())
}

func TestStartNeedsADirectory(t *testing.T) {
	_, err := Start(context.Background(), Options{})
	NewWithT(t).Expect(err).To(MatchError("Options.Dir is required"))
}
