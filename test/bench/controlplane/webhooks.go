// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// WebhookServer says where a webhook server has to serve so that the API server reaches it.
type WebhookServer struct {
	// Host and Port are the address to listen on.
	Host string
	Port int
	// CertDir holds tls.crt and tls.key.
	CertDir string
}

// InstallWebhooks installs the webhook configurations among the objects of a multi-document YAML, and directs them to a
// local address instead of a Service. The API server calls that address from then on, so a server should follow soon.
// Objects of other kinds are ignored.
func (cp *ControlPlane) InstallWebhooks(_ context.Context, manifests []byte) (*WebhookServer, error) {
	hooks, err := decodeWebhooks(manifests)
	if err != nil {
		return nil, err
	}
	if len(hooks.MutatingWebhooks)+len(hooks.ValidatingWebhooks) == 0 {
		return nil, fmt.Errorf("no webhook configuration among the objects")
	}
	// Registered first: a failed installation has made the directory of certificates already.
	cp.webhooks = append(cp.webhooks, hooks)
	if err := hooks.Install(cp.config); err != nil {
		return nil, fmt.Errorf("installing webhooks: %w", err)
	}
	return &WebhookServer{Host: hooks.LocalServingHost, Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir}, nil
}

// decodeWebhooks picks the webhook configurations out of a multi-document YAML.
func decodeWebhooks(manifests []byte) (*envtest.WebhookInstallOptions, error) {
	objects, err := decodeYAML(manifests)
	if err != nil {
		return nil, err
	}
	options := &envtest.WebhookInstallOptions{}
	for _, u := range objects {
		switch u.GetKind() {
		case "MutatingWebhookConfiguration":
			hook := &admissionregistrationv1.MutatingWebhookConfiguration{}
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, hook)
			options.MutatingWebhooks = append(options.MutatingWebhooks, hook)
		case "ValidatingWebhookConfiguration":
			hook := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, hook)
			options.ValidatingWebhooks = append(options.ValidatingWebhooks, hook)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	return options, nil
}
