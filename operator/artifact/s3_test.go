// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package artifact_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/artifact"
	"github.com/caplv/caplv/operator/artifact/fetch"
)

const (
	accessKey, secretKey, sessionToken = "AK", "SK", "ST"
	bucket                             = "my-boot-artifacts"
)

// objectStore is an S3 store that checks signatures.
type objectStore struct {
	*breaking

	backend *s3mem.Backend
}

func newStore(t *testing.T) *objectStore {
	t.Helper()
	backend := s3mem.New()
	NewWithT(t).Expect(backend.CreateBucket(bucket)).To(Succeed())
	server := gofakes3.New(backend).Server()
	return &objectStore{newBreaking(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !signed(r) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte("<Error><Code>SignatureDoesNotMatch</Code></Error>"))
			return
		}
		server.ServeHTTP(w, r)
	}), func(r *http.Request) bool { return r.Method == http.MethodGet }), backend}
}

func (s *objectStore) put(t *testing.T, key string, p []byte) {
	t.Helper()
	_, err := s.backend.PutObject(bucket, key, map[string]string{"Last-Modified": time.Now().UTC().Format(http.TimeFormat)}, bytes.NewReader(p), int64(len(p)), nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}

func (s *objectStore) source(key string) artifact.Source {
	return artifact.Source{
		Location:    fetch.S3{Endpoint: s.host(), Region: "eu-test-1", Bucket: bucket, Key: key, PathStyle: true},
		Credentials: fetch.Credentials{AccessKeyID: accessKey, SecretAccessKey: secretKey, SessionToken: sessionToken}, Fields: fields,
	}
}

// signed checks a signature of version 4, as AWS describes it.
func signed(r *http.Request) bool {
	parts := map[string]string{}
	for part := range strings.SplitSeq(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		parts[name] = value
	}
	key, scope, _ := strings.Cut(parts["Credential"], "/")
	if key != accessKey || r.Header.Get("X-Amz-Security-Token") != sessionToken {
		return false
	}
	var headers strings.Builder
	for name := range strings.SplitSeq(parts["SignedHeaders"], ";") {
		value := strings.Join(r.Header.Values(name), ",")
		if name == "host" {
			value = r.Host
		}
		headers.WriteString(name + ":" + strings.TrimSpace(value) + "\n")
	}
	canonical := strings.Join([]string{
		r.Method, (&url.URL{Path: r.URL.Path}).EscapedPath(), r.URL.Query().Encode(), headers.String(), parts["SignedHeaders"],
		r.Header.Get("X-Amz-Content-Sha256"),
	}, "\n")
	sum := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", r.Header.Get("X-Amz-Date"), scope, hex.EncodeToString(sum[:])}, "\n")
	secret := []byte("AWS4" + secretKey)
	for part := range strings.SplitSeq(scope, "/") {
		secret = mac(secret, part)
	}
	return hex.EncodeToString(mac(secret, text)) == parts["Signature"]
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func TestAnObjectThatIsReplacedGetsANewVersion(t *testing.T) {
	g := NewWithT(t)
	server := newStore(t)
	cache := newCache(t, t.TempDir(), quick(server.roots()))
	for _, text := range []string{"one", "one", "another"} {
		server.put(t, "key", []byte(text))
		got, err := cache.Get(t.Context(), server.source("key"), nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got.SHA256).To(Equal(digestOf([]byte(text))))
		got.Release()
	}
	g.Expect(server.sent.Load()).To(BeEquivalentTo(len("one") + len("another")))
}
