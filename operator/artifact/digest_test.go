// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package artifact_test

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/caplv/caplv/operator/artifact"
	"github.com/caplv/caplv/operator/artifact/fetch"
)

func TestTwoPlacesOfTheSameDigestShareOneTransfer(t *testing.T) {
	g := NewWithT(t)
	file := noise(1 << 20)
	first, second := newFileServer(t, file), newFileServer(t, file)
	begin := make(chan struct{})
	hold := func(http.ResponseWriter, *http.Request) bool {
		<-begin
		return false
	}
	first.fault, second.fault = hold, hold
	roots := first.roots()
	roots.AddCert(second.Certificate())
	cache := newCache(t, t.TempDir(), quick(roots))
	registry := prometheus.NewRegistry()
	g.Expect(artifact.Register(registry)).To(Succeed())
	before, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	results := make(chan error, 2)
	for _, server := range []*fileServer{first, second} {
		go func() {
			source := server.source()
			source.Location = fetch.HTTPS{URL: server.URL + "/f"}
			source.SHA256 = digestOf(file)
			got, err := cache.Get(t.Context(), source, nil)
			if err == nil {
				got.Release()
			}
			results <- err
		}()
	}
	g.Eventually(func() int { return artifact.Waiting(cache) }).Should(Equal(2))
	close(begin)
	for range 2 {
		g.Eventually(results, "10s").Should(Receive(BeNil()))
	}
	after, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(transferred(after)-transferred(before)).To(BeEquivalentTo(len(file)), "the other server is only asked whether it lets in")
}

// transferred is the sum of all transports' bytes.
func transferred(families []*dto.MetricFamily) float64 {
	sum := 0.0
	for _, f := range families {
		if f.GetName() == "caplv_artifact_transferred_bytes_total" {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
