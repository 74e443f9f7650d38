// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootartifact

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/hosts"
)

// fakeHosts are hosts whose helpers keep files in memory, by the name of their LibvirtHost. The end-to-end tests have real ones.
type fakeHosts struct {
	hosts.Host

	mu sync.Mutex
	// files are the digests that are on each host, with what was written; writes counts the transfers.
	files  map[string]map[hostctl.BootFile][]byte
	writes int
	// fail is what the next request is answered with; hold keeps transfers until it is closed.
	fail error
	hold chan struct{}
}

type fakeHost struct {
	hosts.Host
	all  *fakeHosts
	name string
}

func newFakeHosts() *fakeHosts { return &fakeHosts{files: map[string]map[hostctl.BootFile][]byte{}} }

func (f *fakeHosts) Connect(_ context.Context, lh *infrav1.LibvirtHost) (hosts.Host, error) {
	return &fakeHost{all: f, name: lh.Name}, nil
}
func (f *fakeHosts) Forget(client.ObjectKey) {}

func (f *fakeHosts) failure() error {
	err := f.fail
	f.fail = nil
	return err
}

func (f *fakeHosts) answer(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

func (f *fakeHosts) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

// on lists what is on a host.
func (f *fakeHosts) on(name string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	paths := []string{}
	for file := range f.files[name] {
		paths = append(paths, file.Path())
	}
	slices.Sort(paths)
	return paths
}

func (h *fakeHost) HasBootFile(_ context.Context, f hostctl.BootFile) (bool, error) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	_, there := h.all.files[h.name][f]
	return there, h.all.failure()
}

func (h *fakeHost) StageBootFile(ctx context.Context, f hostctl.BootFile, size int64, content io.Reader) (bool, error) {
	h.all.mu.Lock()
	hold := h.all.hold
	h.all.writes++
	h.all.mu.Unlock()
	var written bytes.Buffer
	if _, err := io.CopyN(&written, content, size/2); err != nil {
		return false, err
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if _, err := io.Copy(&written, content); err != nil {
		return false, err
	}
	if digestOf(written.Bytes()) != f.SHA256 || int64(written.Len()) != size {
		return false, &hostctl.Error{Code: hostctl.CodeDigestMismatch, Message: "mismatch"}
	}
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	if h.all.files[h.name] == nil {
		h.all.files[h.name] = map[hostctl.BootFile][]byte{}
	}
	h.all.files[h.name][f] = written.Bytes()
	return true, nil
}

func (h *fakeHost) RemoveBootFiles(_ context.Context, dir, sha256 string) error {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	for f := range h.all.files[h.name] {
		if f.Dir == dir && f.SHA256 == sha256 {
			delete(h.all.files[h.name], f)
		}
	}
	return h.all.failure()
}

// mirror is an HTTPS server with a kernel, and with an initramfs that is compressed.
type mirror struct {
	*httptest.Server

	mu                sync.Mutex
	kernel, initramfs []byte
	status            int
	downloads         int
}

func newMirror(t *testing.T) *mirror {
	t.Helper()
	m := &mirror{kernel: bytes.Repeat([]byte("kernel "), 1<<18), initramfs: bytes.Repeat([]byte("initramfs "), 1<<17)}
	m.Server = httptest.NewTLSServer(http.HandlerFunc(m.serve))
	t.Cleanup(m.Close)
	return m
}

func (m *mirror) serve(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	content := m.kernel
	if r.URL.Path != "/vmlinuz" {
		var compressed bytes.Buffer
		writer := gzip.NewWriter(&compressed)
		_, _ = writer.Write(m.initramfs)
		_ = writer.Close()
		content = compressed.Bytes()
	}
	status, etag := m.status, `"`+digestOf(content)+`"`
	if status == 0 && r.Header.Get("If-None-Match") != etag {
		m.downloads++
	}
	m.mu.Unlock()
	if status != 0 {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(content)
}

func (m *mirror) fetched() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.downloads
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
