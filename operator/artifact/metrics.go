// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package artifact

import "github.com/prometheus/client_golang/prometheus"

// Outcomes of a request that is no failure.
const (
	// hit: the file was there, and nothing was asked.
	hit = "hit"
	// confirmed: the file was there, and its source said that it still has it.
	confirmed = "confirmed"
	// fetched: the file was transferred.
	fetched = "fetched"
)

var (
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "caplv_artifact_requests_total",
		Help: "Requests to the cache of images and boot artifacts, by outcome: hit, confirmed, fetched, or the reason of a failure.",
	}, []string{"outcome"})
	transferred = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "caplv_artifact_transferred_bytes_total",
		Help: "Bytes that were received from sources of images and boot artifacts, by transport.",
	}, []string{"transport"})
	durations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "caplv_artifact_fetch_duration_seconds",
		Help:    "How long requests took that fetched a file, by transport.",
		Buckets: prometheus.ExponentialBuckets(0.1, 2, 16),
	}, []string{"transport"})
	evictions = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "caplv_artifact_evictions_total",
		Help: "Files that the cache removed to make room.",
	})
	cacheBytes = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "caplv_artifact_cache_bytes",
		Help: "Bytes that the cache has on disk, unfinished files included.",
	})
)

// Register adds the metrics of this package to a registry.
func Register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{requests, transferred, durations, evictions, cacheBytes} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}
