// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package artifact_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/artifact"
	"github.com/caplv/caplv/operator/artifact/fault"
	"github.com/caplv/caplv/operator/artifact/fetch"
)

// noise is bytes that do not compress.
func noise(n int) []byte {
	p := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(p)
	return p
}

func digestOf(p []byte) string {
	sum := sha256.Sum256(p)
	return hex.EncodeToString(sum[:])
}

// fileServer is an HTTPS server with one file, a private authority, and faults.
type fileServer struct {
	*httptest.Server

	mu   sync.Mutex
	file []byte
	etag string
	// fault answers instead of the file while it says true.
	fault func(w http.ResponseWriter, r *http.Request) bool
	// cutAt ends the connection after so many bytes of an answer, cuts times.
	cutAt, cuts int
	// requests counts answers with a body; ranges those that were a part.
	requests, ranges, sent atomic.Int64
}

func newFileServer(t *testing.T, file []byte) *fileServer {
	t.Helper()
	s := &fileServer{file: file, etag: `"1"`}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *fileServer) replace(file []byte, etag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file, s.etag = file, etag
}

func (s *fileServer) serve(w http.ResponseWriter, r *http.Request) {
	if s.fault != nil && s.fault(w, r) {
		return
	}
	s.mu.Lock()
	file, etag := s.file, s.etag
	cut := s.cuts > 0
	if cut {
		s.cuts--
	}
	s.mu.Unlock()
	s.requests.Add(1)
	if r.Header.Get("Range") != "" {
		s.ranges.Add(1)
	}
	if etag != "" {
		w.Header().Set("ETag", etag)
	}
	left := -1
	if cut {
		left = s.cutAt
	}
	http.ServeContent(&cutWriter{ResponseWriter: w, left: left, sent: &s.sent}, r, "", time.Time{}, bytes.NewReader(file))
}

type cutWriter struct {
	http.ResponseWriter

	left   int
	sent   *atomic.Int64
	failed bool
}

func (w *cutWriter) WriteHeader(status int) {
	w.failed = status >= 300
	w.ResponseWriter.WriteHeader(status)
}

func (w *cutWriter) Write(p []byte) (int, error) {
	if w.left >= 0 && len(p) > w.left {
		_, _ = w.ResponseWriter.Write(p[:w.left])
		flush(w.ResponseWriter)
		panic(http.ErrAbortHandler)
	}
	if w.left >= 0 {
		w.left -= len(p)
	}
	if !w.failed {
		w.sent.Add(int64(len(p)))
	}
	return w.ResponseWriter.Write(p)
}

// flush has the client see what was written.
func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

func (s *fileServer) source() artifact.Source {
	return artifact.Source{
		Location: fetch.HTTPS{URL: s.URL + "/image.qcow2"},
		Fields: map[fault.Part]string{
			fault.Location: "spec.baseImage.source.https.url", fault.Digest: "spec.baseImage.source.https.sha256",
			fault.Credentials: "spec.baseImage.source.https.credentialsSecretRef", fault.TLS: "spec.baseImage.source.https.insecureSkipTLSVerify",
		},
	}
}

func (s *fileServer) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}

// quick are limits that tests need not wait for.
func quick(roots *x509.CertPool) artifact.Options {
	return artifact.Options{
		Fetch: fetch.Options{RootCAs: roots, RetryWait: time.Millisecond, RetryMaxWait: 20 * time.Millisecond, StallWindow: 2 * time.Second},
		Fresh: time.Nanosecond,
	}
}

func newCache(t *testing.T, dir string, options artifact.Options) *artifact.Cache {
	t.Helper()
	cache, err := artifact.NewCache(dir, options)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = cache.Close() })
	return cache
}
