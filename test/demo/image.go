// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/caplv/caplv/test/bench/host"
)

// servedImage is the guest's image on an HTTPS server of this machine.
type servedImage struct {
	url, sha256 string
	server      *httptest.Server
}

// serveImage builds the guest's image, unless the cache has it, and serves it.
func serveImage(ctx context.Context, repository string) (*servedImage, error) {
	path, err := host.GuestImage(ctx, repository)
	if err != nil {
		return nil, err
	}
	image, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = image.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, image); err != nil {
		return nil, err
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, path) }))
	return &servedImage{url: server.URL + "/" + baseImage, sha256: hex.EncodeToString(sum.Sum(nil)), server: server}, nil
}
