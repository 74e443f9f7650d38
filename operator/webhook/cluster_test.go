// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

func TestClusters(t *testing.T) {
	endpoint := func(host string, port int64) map[string]any {
		e := map[string]any{}
		if host != "" {
			e["host"] = host
		}
		if port != 0 {
			e["port"] = port
		}
		return e
	}
	at := spec("controlPlaneEndpoint")
	https := func(ref map[string]any) map[string]any {
		return map[string]any{"pool": "default", "volumeName": "v.qcow2", "source": map[string]any{"type": "HTTPS",
			"https": map[string]any{"url": "https://a.example.com/v", "credentialsSecretRef": ref}}}
	}
	check(t, clusterYAML, []row{
		{"the smallest cluster is accepted", nil, nil, nil},
		{"no endpoint at all is accepted", at, nil, nil},
		{"an IPv6 address is accepted", at, endpoint("2001:db8::1", 6443), nil},
		{"a URL as host is refused", at, endpoint("https://api.example.com", 6443),
			[]string{`spec.controlPlaneEndpoint.host: Invalid value: "https://api.example.com"`, "without scheme"}},
		{"a port in the host is refused", at, endpoint("api.example.com:6443", 6443),
			[]string{`spec.controlPlaneEndpoint.host: Invalid value: "api.example.com:6443"`, "without scheme, brackets, port"}},
		{"a host without port is refused", at, endpoint("api.example.com", 0),
			[]string{`spec.controlPlaneEndpoint.port: Required value`, "usually is 6443"}},
		{"a port without host is refused", at, endpoint("", 6443),
			[]string{`spec.controlPlaneEndpoint.host: Required value`, "remove the endpoint"}},
		{"credentials of the cluster's namespace are accepted", spec("baseImage"), https(map[string]any{"name": "c", "namespace": "default"}), nil},
		{"credentials of another namespace are refused", spec("baseImage"), https(map[string]any{"name": "c", "namespace": "kube-system"}),
			[]string{`spec.baseImage.source.https.credentialsSecretRef.namespace: Invalid value: "kube-system"`, "put a copy there"}},
	})
}

func TestAnEndpointThatWasReachedIsKept(t *testing.T) {
	g := NewWithT(t)
	c := suite.cp.Client()
	lc := typed(g, clusterYAML, &infrav1.LibvirtCluster{}, namespace(t), "c")
	g.Expect(c.Create(t.Context(), lc)).To(Succeed())
	lc.Spec.ControlPlaneEndpoint.Host = "api2.example.com"
	g.Expect(c.Update(t.Context(), lc)).To(Succeed(), "a mistake can be mended")

	lc.Status.Initialization.Provisioned = new(true)
	g.Expect(c.Status().Update(t.Context(), lc)).To(Succeed())
	other := lc.DeepCopy()
	other.Spec.ControlPlaneEndpoint.Port = 443
	g.Expect(c.Update(t.Context(), other)).To(MatchError(And(
		ContainSubstring(`spec.controlPlaneEndpoint: Invalid value: "api2.example.com:443": the endpoint api2.example.com:6443 is in use`),
		ContainSubstring("put it back"))))
	none := lc.DeepCopy()
	none.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
	g.Expect(c.Update(t.Context(), none)).To(MatchError(ContainSubstring("api2.example.com:6443 is in use")))
	staged := lc.DeepCopy()
	staged.Spec.BaseImage = &infrav1.BaseImage{Pool: "default", VolumeName: "v.qcow2", Source: infrav1.BaseImageSource{
		Type: infrav1.SourceTypeHTTPS, HTTPS: &infrav1.HTTPSBaseImage{URL: "https://a.example.com/v"}}}
	g.Expect(c.Update(t.Context(), staged, client.DryRunAll)).To(Succeed(), "the rest of the spec may change")
}
