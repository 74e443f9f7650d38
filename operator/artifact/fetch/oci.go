// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/caplv/caplv/operator/artifact/fault"
)

// maxManifest is more than any manifest has.
const maxManifest = 4 << 20

type ociLayer struct {
	repository    *remote.Repository
	client        *auth.Client
	location      OCI
	authenticated bool
}

func (c *Client) newOCI(s Source, l OCI) (opener, error) {
	repository, err := remote.NewRepository(l.Reference)
	if err != nil || repository.Reference.Reference == "" {
		return nil, fault.New(fault.InvalidSource, fault.Location, "a reference reads REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@sha256:DIGEST").Because(err)
	}
	k := s.Credentials
	client := &auth.Client{Client: c.http(s, l.PlainHTTP), Cache: auth.NewCache()}
	if k != (Credentials{}) {
		client.Credential = auth.StaticCredential(repository.Reference.Host(), auth.Credential{
			Username: k.Username, Password: k.Password, RefreshToken: k.IdentityToken, AccessToken: k.RegistryToken,
		})
	}
	client.SetUserAgent("caplv")
	repository.Client, repository.PlainHTTP, repository.MaxMetadataBytes = client, l.PlainHTTP, maxManifest
	return &ociLayer{repository: repository, client: client, location: l, authenticated: k != Credentials{}}, nil
}

func (l *ociLayer) Open(ctx context.Context, ask Ask) (*Answer, error) {
	if ask.Resume != nil && ask.Offset > 0 {
		// A tag may have moved on since. The layer is still the one that the fetch began with.
		return l.blob(ctx, *ask.Resume, ask.Offset)
	}
	top, err := l.repository.Resolve(ctx, l.repository.Reference.Reference)
	if err != nil {
		return nil, l.describe(err)
	}
	if ask.Known != nil && ask.Known.Manifest == top.Digest.String() {
		return &Answer{Version: *ask.Known, NotModified: true}, nil
	}
	layer, err := l.findLayer(ctx, top)
	if err != nil {
		return nil, err
	}
	return l.blob(ctx, Version{Blob: layer.Digest.String(), Manifest: top.Digest.String(), Size: layer.Size, Resumable: true}, 0)
}

// blob asks for a layer's bytes. The request is made here since the registry's client begins at the first byte each time.
func (l *ociLayer) blob(ctx context.Context, version Version, offset int64) (*Answer, error) {
	reference := l.repository.Reference
	scheme := "https"
	if l.repository.PlainHTTP {
		scheme = "http"
	}
	url := fmt.Sprintf("%s://%s/v2/%s/blobs/%s", scheme, reference.Host(), reference.Repository, version.Blob)
	request, err := http.NewRequestWithContext(auth.AppendRepositoryScope(ctx, reference, auth.ActionPull), http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fault.New(fault.InvalidSource, fault.Location, "the reference cannot be used").Because(err)
	}
	if offset > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	response, err := l.client.Do(request)
	if err != nil {
		return nil, l.describe(err)
	}
	ask := Ask{Resume: &version, Offset: offset}
	switch response.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
		answer, err := readAnswer(response, Ask{Resume: &Version{Size: -1, ETag: response.Header.Get("ETag"), LastModified: response.Header.Get("Last-Modified")}, Offset: offset},
			reference.Host(), l.authenticated)
		if err != nil {
			response.Body.Close()
			return nil, err
		}
		if n := answer.Version.Size; n >= 0 && n != version.Size {
			response.Body.Close()
			return nil, fault.New(fault.Invalid, fault.Location, "%s has other bytes than the manifest says; upload the artifact again", reference.Host())
		}
		answer.Version = version
		return answer, nil
	default:
		defer response.Body.Close()
		_, err := readAnswer(response, ask, reference.Host(), l.authenticated)
		return nil, err
	}
}

func (l *ociLayer) manifest(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	if d.Size > maxManifest {
		return nil, fault.New(fault.TooLarge, fault.Location, "the artifact's manifest has more than %d bytes", int64(maxManifest))
	}
	text, err := content.FetchAll(ctx, l.repository, d)
	if err != nil {
		return nil, l.describe(err)
	}
	return text, nil
}

func (l *ociLayer) describe(err error) error {
	place := l.repository.Reference.Host()
	if response, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		return statusCode(response.StatusCode, place, l.authenticated).Because(err)
	}
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return statusCode(http.StatusNotFound, place, l.authenticated).Because(err)
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return statusCode(http.StatusUnauthorized, place, l.authenticated).Because(err)
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrTrailingData), errors.Is(err, content.ErrInvalidDescriptorSize):
		return fault.New(fault.Invalid, fault.Location, "%s sent a manifest that does not fit its digest; upload the artifact again", place).Because(err)
	}
	return describe(err, place)
}
