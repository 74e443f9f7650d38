// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostrunner

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/awx"
	"github.com/caplv/caplv/operator/hosts"
)

// awxKey is what makes two hosts have one AWX.
type awxKey struct{ url, prefix, organization, templates, token, ca string }

// AWX returns the backends that hosts describe in spec.bootstrap.awx. Hosts that describe the same one share it: it remembers launches that got no answer.
func AWX(secrets client.Reader) BackendFunc {
	var mu sync.Mutex
	known := map[awxKey]ansible.Backend{}
	return func(ctx context.Context, lh *infrav1.LibvirtHost) (ansible.Backend, error) {
		key, err := describeAWX(ctx, secrets, lh)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		if backend := known[key]; backend != nil {
			return backend, nil
		}
		backend, err := awx.New(awx.Config{
			URL: key.url, APIPrefix: key.prefix, Organization: key.organization, TemplatePrefix: key.templates, Token: key.token, CA: []byte(key.ca),
		})
		if err != nil {
			return nil, hosts.NewConfigError(infrav1.RunRejectedReason, "spec.bootstrap.awx: "+err.Error())
		}
		known[key] = backend
		return backend, nil
	}
}

func describeAWX(ctx context.Context, secrets client.Reader, lh *infrav1.LibvirtHost) (awxKey, error) {
	b := lh.Spec.Bootstrap
	if b == nil || b.AWX == nil {
		return awxKey{}, hosts.NewConfigError(infrav1.RunRejectedReason, "spec.bootstrap.awx is missing; add it with url and secretRef")
	}
	name := client.ObjectKey{Namespace: lh.Namespace, Name: b.AWX.SecretRef.Name}
	secret := &corev1.Secret{}
	if err := secrets.Get(ctx, name, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return awxKey{}, hosts.NewConfigError(infrav1.SecretNotFoundReason, fmt.Sprintf(
				"Secret %s of spec.bootstrap.awx.secretRef does not exist; create it with an OAuth2 token of AWX under %q", name, infrav1.AWXTokenSecretKey))
		}
		return awxKey{}, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	if len(secret.Data[infrav1.AWXTokenSecretKey]) == 0 {
		return awxKey{}, hosts.NewConfigError(infrav1.SecretNotFoundReason, fmt.Sprintf(
			"Secret %s of spec.bootstrap.awx.secretRef has no key %q; it must hold an OAuth2 token of AWX", name, infrav1.AWXTokenSecretKey))
	}
	return awxKey{
		url: b.AWX.URL, prefix: b.AWX.APIPrefix, organization: b.AWX.Organization, templates: b.AWX.JobTemplatePrefix,
		token: string(secret.Data[infrav1.AWXTokenSecretKey]), ca: string(secret.Data[infrav1.AWXCASecretKey]),
	}, nil
}
