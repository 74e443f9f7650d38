// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootartifact

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
	"github.com/caplv/caplv/operator/hostctl"
)

// Cache has files on this machine; *artifact.Cache does.
type Cache interface {
	Get(ctx context.Context, from artifact.Source, progress func(done, total int64)) (artifact.File, error)
}

// local is one of the two files, on this machine and on the host.
type local struct {
	artifact.File
	onHost hostctl.BootFile
}

// fetch has both files on this machine, kernel first. The caller releases them.
func (s *Stager) fetch(ctx context.Context, w work) ([]local, error) {
	secret, err := s.secret(ctx, w.namespace, source.CredentialsOfBootArtifacts(w.boot.Source))
	if err != nil {
		return nil, err
	}
	kernel, initramfs, err := source.BootArtifacts(w.boot.Source, secret)
	if err != nil {
		return nil, fetchFailed(err)
	}
	var files []local
	for _, each := range []struct {
		name string
		from artifact.Source
	}{{hostctl.KernelFile, kernel}, {hostctl.InitramfsFile, initramfs}} {
		doing := "the operator fetches " + each.name
		s.tell(w.key, doing)
		file, err := s.Cache.Get(ctx, each.from, func(done, total int64) { s.tell(w.key, describe(doing, done, total, 0)) })
		if err != nil {
			release(files)
			return nil, fetchFailed(err)
		}
		files = append(files, local{File: file, onHost: hostctl.BootFile{Dir: HostPath(&w.boot), SHA256: file.SHA256, Name: each.name}})
	}
	return files, nil
}

func release(files []local) {
	for _, f := range files {
		f.Release()
	}
}

// fetchFailed keeps the message of the cache, which names the field and the way out.
func fetchFailed(err error) error {
	if f, ok := errors.AsType[*artifact.Error](err); ok {
		return &Error{infrav1.BootArtifactsFetchFailedReason, fmt.Sprintf("%s (%s)", f.Error(), f.Reason)}
	}
	return err
}

// secret returns the data of the Secret that a source names, from the cluster's own namespace only.
func (s *Stager) secret(ctx context.Context, namespace string, ref *infrav1.CredentialsSecretReference) (map[string][]byte, error) {
	if ref == nil {
		return nil, nil
	}
	name := client.ObjectKey{Namespace: namespace, Name: ref.Name}
	secret := &corev1.Secret{}
	if err := s.APIReader.Get(ctx, name, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, &Error{infrav1.SecretNotFoundReason, fmt.Sprintf(
				"Secret %s of spec.bootArtifacts.source does not exist; create it, or remove credentialsSecretRef", name)}
		}
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	return secret.Data, nil
}
