// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostrunner

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/awx"
	"github.com/caplv/caplv/operator/hosts"
)

// awxIdle is how long a backend that no host has asked for is kept. It remembers launches without an answer, so it outlives a few of them.
const awxIdle = time.Hour

// AWX gives out backends for AWX: hosts that name the same AWX with the same token share one.
type AWX struct {
	secrets client.Reader
	now     func() time.Time

	mu   sync.Mutex
	kept map[[sha256.Size]byte]*awxBackend
}

type awxBackend struct {
	*awx.Backend
	used time.Time
}

// NewAWX returns an AWX that reads tokens with secrets, which should not cache.
func NewAWX(secrets client.Reader, now func() time.Time) *AWX {
	return &AWX{secrets: secrets, now: now, kept: map[[sha256.Size]byte]*awxBackend{}}
}

// Backend is a BackendFunc.
func (a *AWX) Backend(ctx context.Context, lh *infrav1.LibvirtHost) (ansible.Backend, error) {
	if lh.Spec.Bootstrap == nil || lh.Spec.Bootstrap.AWX == nil {
		return nil, hosts.NewConfigError(infrav1.RunnerUnavailableReason, "spec.bootstrap.awx does not say where AWX is")
	}
	b := lh.Spec.Bootstrap.AWX
	name := client.ObjectKey{Namespace: lh.Namespace, Name: b.SecretRef.Name}
	secret := &corev1.Secret{}
	if err := a.secrets.Get(ctx, name, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, hosts.NewConfigError(infrav1.SecretNotFoundReason, fmt.Sprintf(
				"Secret %s of spec.bootstrap.awx.secretRef does not exist; create it with an OAuth2 token of AWX under %q", name, infrav1.AWXTokenSecretKey))
		}
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	return a.get(awx.Config{
		URL: b.URL, APIPrefix: b.APIPrefix, Organization: b.Organization, TemplatePrefix: b.JobTemplatePrefix,
		Token: string(secret.Data[infrav1.AWXTokenSecretKey]), CA: secret.Data[infrav1.AWXCASecretKey],
	})
}

func (a *AWX) get(config awx.Config) (ansible.Backend, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	// Of the token, only a digest stays in the key.
	key := sha256.Sum256(text)
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, kept := range a.kept {
		if k != key && a.now().Sub(kept.used) > awxIdle {
			kept.Close()
			delete(a.kept, k)
		}
	}
	if a.kept[key] == nil {
		backend, err := awx.New(config)
		if err != nil {
			return nil, err
		}
		a.kept[key] = &awxBackend{Backend: backend}
	}
	a.kept[key].used = a.now()
	return a.kept[key].Backend, nil
}
