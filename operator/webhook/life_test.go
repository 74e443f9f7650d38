// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// oldObjects were accepted before there were webhooks, and break their rules.
var oldObjects = []string{`
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtMachine
metadata: {name: old, namespace: default, finalizers: [infrastructure.cluster.x-k8s.io/libvirtmachine]}
spec:
  hostRef: {name: Old_Host}
  rootDisk: {size: 10Gi, storagePool: default, baseImage: rhcos.qcow2}
  network: {type: bridge, name: br0, addresses: ["192.0.2.0/24"], gateway: 192.0.2.255}
  nodeLabels: {"a b": "x y"}
`, `
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtHost
metadata: {name: old, namespace: default, finalizers: [infrastructure.cluster.x-k8s.io/libvirthost]}
spec:
  uri: qemu+ssh://caplv@host.example.com:70000/system
  secretRef: {name: key}
  nvramTemplatePath: /vars.fd
`, `
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtCluster
metadata: {name: old, namespace: default, finalizers: [example.com/keep]}
spec:
  controlPlaneEndpoint: {host: "https://api.example.com", port: 6443}
`}

func createOldObjects(ctx context.Context) error {
	for _, manifest := range oldObjects {
		if err := suite.cp.Apply(ctx, []byte(manifest)); err != nil {
			return err
		}
	}
	return nil
}

// old reads one of oldObjects as it is stored.
func old[T client.Object](t *testing.T, object T) T {
	t.Helper()
	NewWithT(t).Expect(suite.cp.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "old"}, object)).To(Succeed())
	return object
}

func TestObjectsThatBreakNewRulesLiveOnAndGo(t *testing.T) {
	c := suite.cp.Client()
	t.Run("what an update leaves alone is not judged", func(t *testing.T) {
		g := NewWithT(t)
		lm := old(t, &infrav1.LibvirtMachine{})
		lm.Spec.ProviderID = "libvirt://Old_Host/1"
		lm.Spec.NodeAnnotations = map[string]string{"a": "b"}
		g.Expect(c.Update(t.Context(), lm)).To(Succeed())
		lh := old(t, &infrav1.LibvirtHost{})
		lh.Spec.HealthCheckIntervalSeconds = new(int32(60))
		g.Expect(c.Update(t.Context(), lh)).To(Succeed())
	})
	t.Run("what it makes worse is refused, and named alone", func(t *testing.T) {
		g := NewWithT(t)
		lm := old(t, &infrav1.LibvirtMachine{})
		lm.Spec.NodeLabels["c d"] = ""
		err := c.Update(t.Context(), lm)
		g.Expect(err).To(MatchError(ContainSubstring(`spec.nodeLabels[c d]: Invalid value: "c d"`)))
		g.Expect(err).NotTo(MatchError(ContainSubstring("a b")))
		g.Expect(err).NotTo(MatchError(ContainSubstring("spec.network")))
		lh := old(t, &infrav1.LibvirtHost{})
		lh.Spec.SecretRef.Name = "Key"
		err = c.Update(t.Context(), lh)
		g.Expect(err).To(MatchError(ContainSubstring("spec.secretRef.name")))
		g.Expect(err).NotTo(MatchError(ContainSubstring("spec.uri")))
	})
	t.Run("what it makes better is accepted", func(t *testing.T) {
		g := NewWithT(t)
		lc := old(t, &infrav1.LibvirtCluster{})
		lc.Spec.ControlPlaneEndpoint.Host = "api.example.com"
		g.Expect(c.Update(t.Context(), lc)).To(Succeed())
	})
	t.Run("status can be written", func(t *testing.T) {
		g := NewWithT(t)
		lm := old(t, &infrav1.LibvirtMachine{})
		lm.Status.DomainState = "running"
		g.Expect(c.Status().Update(t.Context(), lm)).To(Succeed())
	})
	t.Run("they can be deleted and their finalizers removed", func(t *testing.T) {
		for _, object := range []client.Object{&infrav1.LibvirtMachine{}, &infrav1.LibvirtHost{}, &infrav1.LibvirtCluster{}} {
			g := NewWithT(t)
			old(t, object)
			g.Expect(c.Delete(t.Context(), object)).To(Succeed())
			old(t, object)
			g.Expect(object.GetDeletionTimestamp()).NotTo(BeNil())
			object.SetFinalizers(nil)
			g.Expect(c.Update(t.Context(), object)).To(Succeed())
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(object), object)).NotTo(Succeed())
		}
	})
}

func TestAnUpdateOfAMachine(t *testing.T) {
	g := NewWithT(t)
	c := suite.cp.Client()
	lm := typed(g, machineYAML, &infrav1.LibvirtMachine{}, namespace(t), "m")
	g.Expect(c.Create(t.Context(), lm)).To(Succeed())
	for _, row := range []struct {
		name  string
		patch string
		want  string
	}{
		{"the host is fixed", `{"spec":{"hostRef":{"name":"other"}}}`, "hostRef cannot be changed: delete the machine and create it again"},
		{"labels may change", `{"spec":{"nodeLabels":{"a":"b"}}}`, ""},
		{"labels are still judged", `{"spec":{"nodeLabels":{"a":"b c"}}}`, `spec.nodeLabels[a]: Invalid value: "b c"`},
		{"annotations are still judged", `{"spec":{"nodeAnnotations":{"cluster.x-k8s.io/machine":"b"}}}`, "Cluster API writes this key"},
		{"the recovery policy may change", `{"spec":{"recoveryPolicy":"Restart"}}`, ""},
		{"a foreign provider ID is refused", `{"spec":{"providerID":"kind://1"}}`, `spec.providerID: Invalid value: "kind://1"`},
		{"a provider ID is set once", `{"spec":{"providerID":"libvirt://host/1"}}`, ""},
		{"and no second time", `{"spec":{"providerID":"libvirt://host/2"}}`, "providerID cannot be changed once it is set"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			err := c.Patch(t.Context(), lm.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(row.patch)))
			if row.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(row.want)))
		})
	}
}

func TestServerSideApply(t *testing.T) {
	g := NewWithT(t)
	c, ns := suite.cp.Client(), namespace(t)
	for _, manifest := range []string{machineYAML, hostYAML, clusterYAML} {
		apply := func(owner string, options ...client.ApplyOption) error {
			u := changed(g, manifest, nil, nil)
			u.SetNamespace(ns)
			return c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), append(options, client.FieldOwner(owner))...)
		}
		g.Expect(apply("one", client.DryRunAll)).To(Succeed())
		stored := changed(g, manifest, nil, nil)
		stored.SetNamespace(ns)
		key := client.ObjectKeyFromObject(stored)
		g.Expect(c.Get(t.Context(), key, stored)).NotTo(Succeed(), "a dry run stores nothing")

		g.Expect(apply("one")).To(Succeed())
		g.Expect(c.Get(t.Context(), key, stored)).To(Succeed())
		version := stored.GetResourceVersion()
		g.Expect(apply("one")).To(Succeed())
		g.Expect(apply("one", client.DryRunAll)).To(Succeed())
		g.Expect(c.Get(t.Context(), key, stored)).To(Succeed())
		g.Expect(stored.GetResourceVersion()).To(Equal(version), "applying the same again changes nothing")
		g.Expect(stored.GetManagedFields()).To(HaveLen(1), "nobody but the author has written anything")
		g.Expect(apply("two")).To(Succeed(), "a second author of the same values has no conflict")
	}
	bad := changed(g, machineYAML, spec("nodeLabels"), map[string]any{"a": "b c"})
	bad.SetNamespace(ns)
	g.Expect(c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(bad), client.FieldOwner("one"))).To(
		MatchError(ContainSubstring(`spec.nodeLabels[a]: Invalid value: "b c"`)))
}

func TestWhatNeedsNoOperator(t *testing.T) {
	g := NewWithT(t)
	c, ns := suite.cp.Client(), namespace(t)
	objects := []client.Object{
		typed(g, machineYAML, &infrav1.LibvirtMachine{}, ns, "m"), typed(g, hostYAML, &infrav1.LibvirtHost{}, ns, "h"),
		typed(g, clusterYAML, &infrav1.LibvirtCluster{}, ns, "c"),
	}
	for _, object := range objects {
		object.SetFinalizers([]string{"example.com/keep"})
		g.Expect(c.Create(t.Context(), object)).To(Succeed())
	}
	g.Expect(suite.stop()).To(Succeed())
	t.Cleanup(func() { g.Expect(startManager()).To(Succeed()) })

	g.Expect(c.Create(t.Context(), typed(g, hostYAML, &infrav1.LibvirtHost{}, ns, "h2"))).To(MatchError(ContainSubstring("connection refused")), "what is new is not let through")
	for _, object := range objects {
		gvk, err := apiutil.GVKForObject(object, c.Scheme())
		g.Expect(err).NotTo(HaveOccurred())
		object.SetLabels(map[string]string{"a": "b"})
		object.SetAnnotations(map[string]string{"a": "b"})
		g.Expect(c.Update(t.Context(), object)).To(Succeed(), "metadata of %s", gvk.Kind)
		status := &unstructured.Unstructured{}
		status.SetGroupVersionKind(gvk)
		status.SetNamespace(ns)
		status.SetName(object.GetName())
		g.Expect(c.Status().Patch(t.Context(), status, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"ready":false}}`)))).To(Succeed(), "status of %s", gvk.Kind)
		g.Expect(c.Delete(t.Context(), object)).To(Succeed(), "deletion of %s", gvk.Kind)
		g.Expect(c.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed(), "finalizers of %s", gvk.Kind)
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(object), object)).NotTo(Succeed())
	}
}

func mustYAML(g Gomega, u *unstructured.Unstructured) string {
	content, err := json.Marshal(u)
	g.Expect(err).NotTo(HaveOccurred())
	content, err = yaml.JSONToYAML(content)
	g.Expect(err).NotTo(HaveOccurred())
	return string(content)
}
