// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// shipped returns the objects of operator/config/default, by kind and name.
func shipped(g Gomega) map[string]*unstructured.Unstructured {
	objects := map[string]*unstructured.Unstructured{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(suite.manifests), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		g.Expect(err).NotTo(HaveOccurred())
		objects[u.GetKind()+"/"+u.GetName()] = u
	}
}

func as[T any](g Gomega, u *unstructured.Unstructured, object *T) *T {
	g.Expect(u).NotTo(BeNil())
	g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object)).To(Succeed())
	return object
}

// TestTheShippedManifestsFitTogether follows a call of the API server to the manager. cert-manager is not there to do its
// part; what it goes by is checked.
func TestTheShippedManifestsFitTogether(t *testing.T) {
	g := NewWithT(t)
	objects := shipped(g)
	hooks := as(g, objects["ValidatingWebhookConfiguration/caplv-validating-webhook-configuration"], &admissionregistrationv1.ValidatingWebhookConfiguration{})
	service := as(g, objects["Service/caplv-webhook-service"], &corev1.Service{})
	deployment := as(g, objects["Deployment/caplv-controller-manager"], &appsv1.Deployment{})
	pod := deployment.Spec.Template
	manager := pod.Spec.Containers[0]
	certificate, issuer := objects["Certificate/caplv-serving-cert"], objects["Issuer/caplv-webhook-ca-issuer"]
	ca, root := objects["Certificate/caplv-webhook-ca"], objects["Issuer/caplv-selfsigned-issuer"]
	text := func(u *unstructured.Unstructured, path ...string) string {
		g.Expect(u).NotTo(BeNil())
		value, found, err := unstructured.NestedString(u.Object, path...)
		g.Expect(found, err).To(BeTrue(), "%s %v", u.GetName(), path)
		return value
	}

	g.Expect(hooks.Webhooks).To(HaveLen(4))
	for _, hook := range hooks.Webhooks {
		g.Expect(hook.ClientConfig.Service.Name).To(Equal(service.Name), hook.Name)
		g.Expect(hook.ClientConfig.Service.Namespace).To(Equal(service.Namespace), hook.Name)
		g.Expect(*hook.SideEffects).To(Equal(admissionregistrationv1.SideEffectClassNone), hook.Name)
		g.Expect(*hook.MatchPolicy).To(Equal(admissionregistrationv1.Equivalent), hook.Name)
		g.Expect(hook.NamespaceSelector).To(BeNil(), hook.Name)
		operations := hook.Rules[0].Operations
		if *hook.FailurePolicy == admissionregistrationv1.Ignore {
			g.Expect(operations).To(ConsistOf(admissionregistrationv1.Delete), "only warnings may be missed")
			continue
		}
		g.Expect(operations).To(ConsistOf(admissionregistrationv1.Create, admissionregistrationv1.Update), "no deletion waits for the operator")
		g.Expect(*hook.TimeoutSeconds).To(BeEquivalentTo(10))
		g.Expect(hook.MatchConditions).To(HaveLen(2), hook.Name)
	}

	asShipped := hooks.DeepCopy()
	asShipped.Name = "as-shipped"
	g.Expect(suite.cp.Client().Create(t.Context(), asShipped, client.DryRunAll)).To(Succeed(), "the bench has it with URLs instead of the Service")

	g.Expect(service.Spec.Ports[0].Port).To(BeEquivalentTo(443), "the port that a webhook's Service has unless it says otherwise")
	g.Expect(pod.Labels).To(HaveKeyWithValue("control-plane", service.Spec.Selector["control-plane"]))
	g.Expect(manager.Ports).To(ContainElement(corev1.ContainerPort{Name: service.Spec.Ports[0].TargetPort.StrVal, ContainerPort: 9443, Protocol: corev1.ProtocolTCP}))
	certs := pod.Spec.Volumes[slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == manager.VolumeMounts[0].Name })]
	g.Expect(manager.Args).To(ContainElements("--webhook-port=9443", "--webhook-cert-dir="+manager.VolumeMounts[0].MountPath))

	g.Expect(text(certificate, "spec", "secretName")).To(Equal(certs.Secret.SecretName))
	names, _, err := unstructured.NestedStringSlice(certificate.Object, "spec", "dnsNames")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names).To(ContainElement(service.Name + "." + service.Namespace + ".svc"))
	g.Expect(hooks.Annotations).To(HaveKeyWithValue("cert-manager.io/inject-ca-from", certificate.GetNamespace()+"/"+certificate.GetName()))
	g.Expect(text(certificate, "spec", "issuerRef", "name")).To(Equal(issuer.GetName()))
	g.Expect(text(issuer, "spec", "ca", "secretName")).To(Equal(text(ca, "spec", "secretName")))
	g.Expect(text(ca, "spec", "issuerRef", "name")).To(Equal(root.GetName()))
	for _, u := range []*unstructured.Unstructured{certificate, issuer, ca, root} {
		g.Expect(u.GetNamespace()).To(Equal(deployment.Namespace), u.GetName())
	}
}
