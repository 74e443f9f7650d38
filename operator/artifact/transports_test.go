// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package artifact_test

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/artifact"
	"github.com/caplv/caplv/operator/artifact/fault"
	"github.com/caplv/caplv/operator/artifact/fetch"
)

// breaking is a server in front of a real one, which breaks connections and counts downloads.
type breaking struct {
	*httptest.Server

	// downloads matches the requests for a file's bytes.
	downloads func(r *http.Request) bool
	// cutAt ends the next cuts downloads after so many bytes.
	cutAt                  int
	cuts, requests, ranges atomic.Int64
	sent                   atomic.Int64
	status                 atomic.Int64
}

func newBreaking(t *testing.T, behind http.Handler, downloads func(r *http.Request) bool) *breaking {
	t.Helper()
	b := &breaking{downloads: downloads}
	b.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := b.status.Load(); status != 0 {
			w.WriteHeader(int(status))
			return
		}
		if !b.downloads(r) {
			behind.ServeHTTP(w, r)
			return
		}
		b.requests.Add(1)
		if r.Header.Get("Range") != "" {
			b.ranges.Add(1)
		}
		left := -1
		if b.cuts.Add(-1) >= 0 {
			left = b.cutAt
		}
		behind.ServeHTTP(&cutWriter{ResponseWriter: w, left: left, sent: &b.sent}, r)
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *breaking) host() string { return strings.TrimPrefix(b.URL, "https://") }

func (b *breaking) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(b.Certificate())
	return pool
}

// transports are the ways to a file, each with a real server that wants credentials.
var transports = map[string]func(t *testing.T, file []byte) (*breaking, artifact.Source){
	"OCI": func(t *testing.T, file []byte) (*breaking, artifact.Source) {
		t.Helper()
		server := newRegistry(t)
		server.push(t, "images/node:v1", layer{"node.qcow2", file})
		return server.breaking, server.source("images/node:v1", "")
	},
	"S3": func(t *testing.T, file []byte) (*breaking, artifact.Source) {
		t.Helper()
		server := newStore(t)
		server.put(t, "rhcos/node.qcow2", file)
		return server.breaking, server.source("rhcos/node.qcow2")
	},
}

func TestEachTransportFetchesEachFormAndResumes(t *testing.T) {
	for transport, serve := range transports {
		for form, compress := range compressions {
			t.Run(transport+", "+form, func(t *testing.T) {
				g := NewWithT(t)
				file := noise(1<<20 + 1)
				server, source := serve(t, compress(file))
				server.cutAt = len(file) / 2
				server.cuts.Store(1)
				cache := newCache(t, t.TempDir(), quick(server.roots()))
				for range 2 {
					got, err := cache.Get(t.Context(), source, nil)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(got.SHA256).To(Equal(digestOf(file)))
					got.Release()
				}
				g.Expect(server.ranges.Load()).To(BeEquivalentTo(1))
				g.Expect(server.sent.Load()).To(BeNumerically("<=", len(compress(file))), "nothing is transferred twice")
			})
		}
	}
}

func TestEachTransportRefusesWrongCredentials(t *testing.T) {
	for transport, serve := range transports {
		for _, credentials := range []fetch.Credentials{
			{}, {Username: "u", Password: "wrong"}, {AccessKeyID: "AK", SecretAccessKey: "wrong"},
		} {
			t.Run(fmt.Sprint(transport, " ", credentials.Username, credentials.AccessKeyID), func(t *testing.T) {
				g := NewWithT(t)
				server, source := serve(t, []byte("x"))
				source.Credentials = credentials
				cache := newCache(t, t.TempDir(), quick(server.roots()))
				_, err := cache.Get(t.Context(), source, nil)
				haveReason(g, err, fault.Unauthorized, "spec.credentials: ")
			})
		}
	}
}

func TestEachTransportHasTheReasonsOfStatuses(t *testing.T) {
	for transport, serve := range transports {
		for status, reason := range map[int64]fault.Reason{
			403: fault.Unauthorized, 404: fault.NotFound, 429: fault.Busy, 500: fault.ServerFailed, 503: fault.Busy,
		} {
			t.Run(fmt.Sprint(transport, " ", status), func(t *testing.T) {
				g := NewWithT(t)
				server, source := serve(t, []byte("x"))
				server.status.Store(status)
				cache := newCache(t, t.TempDir(), quick(server.roots()))
				_, err := cache.Get(t.Context(), source, nil)
				g.Expect(fault.ReasonOf(err)).To(Equal(reason), fmt.Sprint(err))
			})
		}
	}
}

func TestEachTransportVerifiesCertificates(t *testing.T) {
	for transport, serve := range transports {
		t.Run(transport, func(t *testing.T) {
			g := NewWithT(t)
			_, source := serve(t, []byte("x"))
			cache := newCache(t, t.TempDir(), quick(x509.NewCertPool()))
			_, err := cache.Get(t.Context(), source, nil)
			haveReason(g, err, fault.CertificateInvalid, "spec.tls: ")
			source.InsecureSkipTLSVerify = true
			got, err := cache.Get(t.Context(), source, nil)
			g.Expect(err).NotTo(HaveOccurred())
			got.Release()
		})
	}
}

var fields = map[fault.Part]string{fault.Location: "spec.location", fault.Credentials: "spec.credentials", fault.TLS: "spec.tls", fault.Digest: "spec.sha256"}
