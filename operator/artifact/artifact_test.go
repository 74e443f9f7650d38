// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package artifact_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	. "github.com/onsi/gomega"
	"github.com/ulikunitz/xz"

	"github.com/caplv/caplv/operator/artifact"
	"github.com/caplv/caplv/operator/artifact/fault"
)

func gzipped(p []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(p)
	_ = w.Close()
	return b.Bytes()
}

func zstandard(p []byte) []byte {
	var b bytes.Buffer
	w, _ := zstd.NewWriter(&b)
	_, _ = w.Write(p)
	_ = w.Close()
	return b.Bytes()
}

// xzOf has what was compressed already: the encoder is slow.
var xzOf sync.Map

func xzipped(p []byte) []byte {
	if known, ok := xzOf.Load(digestOf(p)); ok {
		compressed, _ := known.([]byte)
		return compressed
	}
	var b bytes.Buffer
	w, _ := xz.NewWriter(&b)
	_, _ = w.Write(p)
	_ = w.Close()
	xzOf.Store(digestOf(p), b.Bytes())
	return b.Bytes()
}

// compressions are the forms that a server may have a file in.
var compressions = map[string]func([]byte) []byte{
	"raw": func(p []byte) []byte { return p }, "gzip": gzipped, "zstd": zstandard, "xz": xzipped,
}

func TestAFileIsFetchedOnceAndKeptByTheDigestOfItsDecompressedBytes(t *testing.T) {
	for name, compress := range compressions {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			file := noise(3<<20 + 17)
			server := newFileServer(t, compress(file))
			cache := newCache(t, t.TempDir(), quick(server.roots()))
			for range 2 {
				var done, total int64
				got, err := cache.Get(t.Context(), server.source(), func(d, n int64) { done, total = d, n })
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(got.SHA256).To(Equal(digestOf(file)))
				g.Expect(got.Size).To(BeEquivalentTo(len(file)))
				bytesOnDisk, err := os.ReadFile(got.Path)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(bytes.Equal(bytesOnDisk, file)).To(BeTrue())
				_ = done
				_ = total
				got.Release()
			}
			g.Expect(server.sent.Load()).To(BeEquivalentTo(len(compress(file))))
		})
	}
}

func TestAHundredCallersShareOneDownload(t *testing.T) {
	g := NewWithT(t)
	file := noise(8 << 20)
	server := newFileServer(t, gzipped(file))
	cache := newCache(t, t.TempDir(), quick(server.roots()))
	begin := make(chan struct{})
	server.fault = func(http.ResponseWriter, *http.Request) bool {
		<-begin
		return false
	}
	var wait sync.WaitGroup
	failures := make(chan error, 100)
	for range 100 {
		wait.Go(func() {
			got, err := cache.Get(t.Context(), server.source(), nil)
			if err != nil {
				failures <- err
				return
			}
			defer got.Release()
			if got.SHA256 != digestOf(file) {
				failures <- os.ErrInvalid
			}
		})
	}
	g.Eventually(func() int { return artifact.Waiting(cache) }, "10s").Should(Equal(100))
	close(begin)
	wait.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}
	g.Expect(server.requests.Load()).To(BeEquivalentTo(1))
}

func TestACallerThatLeavesDoesNotEndTheOthersFetch(t *testing.T) {
	g := NewWithT(t)
	file := noise(1 << 20)
	server := newFileServer(t, file)
	begin := make(chan struct{})
	server.fault = func(http.ResponseWriter, *http.Request) bool {
		<-begin
		return false
	}
	cache := newCache(t, t.TempDir(), quick(server.roots()))
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := cache.Get(ctx, server.source(), nil)
		gone <- err
	}()
	g.Eventually(func() int { return artifact.Waiting(cache) }).Should(Equal(1))
	stays := make(chan error)
	go func() {
		_, err := cache.Get(t.Context(), server.source(), nil)
		stays <- err
	}()
	g.Eventually(func() int { return artifact.Waiting(cache) }).Should(Equal(2))
	cancel()
	g.Eventually(gone).Should(Receive(WithTransform(fault.ReasonOf, Equal(fault.Canceled))))
	close(begin)
	g.Eventually(stays, "5s").Should(Receive(BeNil()))
}
