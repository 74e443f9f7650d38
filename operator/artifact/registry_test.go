// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package artifact_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd" // The registry's users.
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory" // The registry's disk.
	. "github.com/onsi/gomega"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"
	"golang.org/x/crypto/bcrypt"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/caplv/caplv/operator/artifact"
	"github.com/caplv/caplv/operator/artifact/fault"
	"github.com/caplv/caplv/operator/artifact/fetch"
)

// registry is a real one, of the distribution project, with a user u and the password p.
type registry struct{ *breaking }

type layer struct {
	title string
	bytes []byte
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	g := NewWithT(t)
	hash, err := bcrypt.GenerateFromPassword([]byte("p"), bcrypt.MinCost)
	g.Expect(err).NotTo(HaveOccurred())
	users := filepath.Join(t.TempDir(), "users")
	g.Expect(os.WriteFile(users, append([]byte("u:"), hash...), 0o600)).To(Succeed())
	config := &configuration.Configuration{
		Storage: configuration.Storage{"inmemory": {}, "maintenance": {"uploadpurging": map[any]any{"enabled": false}}},
		Auth:    configuration.Auth{"htpasswd": {"realm": "test", "path": users}},
	}
	config.HTTP.Secret = "secret"
	logrus.SetOutput(io.Discard) // The registry's log has no other switch.
	app := handlers.NewApp(context.WithoutCancel(t.Context()), config)
	t.Cleanup(func() { _ = app.Shutdown() })
	return &registry{newBreaking(t, app, func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") && r.Header.Get("Authorization") != ""
	})}
}

func (s *registry) repository(g Gomega, reference string) *remote.Repository {
	r, err := remote.NewRepository(s.host() + "/" + reference)
	g.Expect(err).NotTo(HaveOccurred())
	r.Client = &auth.Client{Client: s.Client(), Credential: auth.StaticCredential(s.host(), auth.Credential{Username: "u", Password: "p"})}
	return r
}

// push pushes an artifact and returns its manifest.
func (s *registry) push(t *testing.T, reference string, layers ...layer) ocispec.Descriptor {
	t.Helper()
	g := NewWithT(t)
	r := s.repository(g, reference)
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: "application/vnd.test",
		Config: ocispec.DescriptorEmptyJSON,
	}
	g.Expect(r.Push(t.Context(), ocispec.DescriptorEmptyJSON, bytes.NewReader([]byte("{}")))).To(Succeed())
	for _, l := range layers {
		d := content.NewDescriptorFromBytes("application/octet-stream", l.bytes)
		g.Expect(r.Push(t.Context(), d, bytes.NewReader(l.bytes))).To(Succeed())
		if l.title != "" {
			d.Annotations = map[string]string{ocispec.AnnotationTitle: l.title}
		}
		m.Layers = append(m.Layers, d)
	}
	return s.pushManifest(t, r, ocispec.MediaTypeImageManifest, m)
}

func (s *registry) pushManifest(t *testing.T, r *remote.Repository, mediaType string, m any) ocispec.Descriptor {
	t.Helper()
	g := NewWithT(t)
	text, err := json.Marshal(m)
	g.Expect(err).NotTo(HaveOccurred())
	tag := r.Reference.Reference
	d, err := oras.TagBytes(t.Context(), r, mediaType, text, tag)
	g.Expect(err).NotTo(HaveOccurred())
	return d
}

func (s *registry) source(reference, title string) artifact.Source {
	return artifact.Source{
		Location:    fetch.OCI{Reference: s.host() + "/" + reference, Title: title, Platform: "linux/amd64"},
		Credentials: fetch.Credentials{Username: "u", Password: "p"}, Fields: fields,
	}
}

func TestLayersAreFoundByTitleAndByPlatform(t *testing.T) {
	g := NewWithT(t)
	server := newRegistry(t)
	server.push(t, "boot:v1", layer{"vmlinuz", []byte("kernel")}, layer{"initramfs.img", []byte("initramfs")})
	amd := server.push(t, "boot:amd", layer{"vmlinuz", []byte("amd")})
	amd.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64"}
	arm := server.push(t, "boot:arm", layer{"vmlinuz", []byte("arm")})
	arm.Platform = &ocispec.Platform{OS: "linux", Architecture: "arm64"}
	server.pushManifest(t, server.repository(g, "boot:all"), ocispec.MediaTypeImageIndex, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{arm, amd},
	})
	cache := newCache(t, t.TempDir(), quick(server.roots()))
	for _, row := range []struct{ reference, title, want string }{
		{"boot:v1", "vmlinuz", "kernel"},
		{"boot:v1", "initramfs.img", "initramfs"},
		{"boot:all", "", "amd"},
		{"boot@" + amd.Digest.String(), "", "amd"},
	} {
		got, err := cache.Get(t.Context(), server.source(row.reference, row.title), nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got.SHA256).To(Equal(digestOf([]byte(row.want))))
		got.Release()
	}
	for _, row := range []struct{ reference, title, message string }{
		{"boot:v1", "", "name the title of one of: vmlinuz, initramfs.img"},
		{"boot:v1", "vmlinux", "only: vmlinuz, initramfs.img"},
		{"boot:v9", "", "has nothing there"},
	} {
		_, err := cache.Get(t.Context(), server.source(row.reference, row.title), nil)
		haveReason(g, err, fault.NotFound, "spec.location: ")
		g.Expect(err.Error()).To(ContainSubstring(row.message))
	}
	other := server.source("boot:all", "")
	other.Location = fetch.OCI{Reference: server.host() + "/boot:all", Platform: "linux/s390x"}
	_, err := cache.Get(t.Context(), other, nil)
	g.Expect(err).To(MatchError(ContainSubstring("only for: linux/arm64, linux/amd64")))
}

func TestATagThatMovesGetsANewVersionAndOneThatDoesNotIsNotFetchedAgain(t *testing.T) {
	g := NewWithT(t)
	server := newRegistry(t)
	server.push(t, "node:latest", layer{"", []byte("one")})
	cache := newCache(t, t.TempDir(), quick(server.roots()))
	for range 2 {
		got, err := cache.Get(t.Context(), server.source("node:latest", ""), nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got.SHA256).To(Equal(digest.FromString("one").Encoded()))
		got.Release()
	}
	g.Expect(server.requests.Load()).To(BeEquivalentTo(1))
	server.push(t, "node:latest", layer{"", []byte("two")})
	got, err := cache.Get(t.Context(), server.source("node:latest", ""), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.SHA256).To(Equal(digest.FromString("two").Encoded()))
	got.Release()
}
