// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package baseimage

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/artifact"
	"github.com/caplv/caplv/operator/artifact/source"
)

// CacheFetcher is the Fetcher that keeps images in a cache of artifacts.
type CacheFetcher struct {
	// Cache has the images. Who runs the playbooks sees its files under the same paths.
	Cache *artifact.Cache
	// Secrets reads Secrets. It should not cache.
	Secrets client.Reader
}

// Fetch implements Fetcher. Failures of the source are of type *Error.
func (f *CacheFetcher) Fetch(ctx context.Context, namespace string, from infrav1.BaseImageSource, tell func(done, total int64)) (File, error) {
	secret, err := f.secret(ctx, namespace, source.CredentialsOfBaseImage(from))
	if err != nil {
		return File{}, err
	}
	described, err := source.BaseImage(from, secret)
	if err != nil {
		return File{}, fetchFailed(err)
	}
	file, err := f.Cache.Get(ctx, described, tell)
	if err != nil {
		return File{}, fetchFailed(err)
	}
	return File{Path: file.Path, SHA256: file.SHA256, Size: file.Size, Release: file.Release}, nil
}

// fetchFailed keeps the message of the cache, which names the field and the way out.
func fetchFailed(err error) error {
	if f, ok := errors.AsType[*artifact.Error](err); ok {
		return &Error{infrav1.BaseImageFetchFailedReason, fmt.Sprintf("%s (%s)", f.Error(), f.Reason)}
	}
	return err
}

// secret returns the data of the Secret that a source names, from the cluster's own namespace only.
func (f *CacheFetcher) secret(ctx context.Context, namespace string, ref *infrav1.CredentialsSecretReference) (map[string][]byte, error) {
	if ref == nil {
		return nil, nil
	}
	name := client.ObjectKey{Namespace: namespace, Name: ref.Name}
	secret := &corev1.Secret{}
	if err := f.Secrets.Get(ctx, name, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, &Error{infrav1.SecretNotFoundReason, fmt.Sprintf(
				"Secret %s of spec.baseImage.source does not exist; create it, or remove credentialsSecretRef", name)}
		}
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	return secret.Data, nil
}
