// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caplv/caplv/operator/ansible"
)

// slow buckets are for things that take from a second to hours, in seconds.
var slow = []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400}

type metrics struct {
	registry *prometheus.Registry
	runs     *prometheus.CounterVec
	duration *prometheus.HistogramVec
	waiting  prometheus.Histogram
	hosts    *prometheus.CounterVec
}

func newMetrics(r *Runner) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "caplv_ansible_runs_total", Help: "Runs that ended, by playbook, whether they were checks, and phase.",
		}, []string{"playbook", "check", "phase"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "caplv_ansible_run_duration_seconds", Help: "How long runs took from their beginning to their end.", Buckets: slow,
		}, []string{"playbook", "phase"}),
		waiting: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "caplv_ansible_run_waiting_seconds", Help: "How long runs waited before they began.", Buckets: slow,
		}),
		hosts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "caplv_ansible_host_failures_total", Help: "Hosts that a run did not end on as it should, by phase.",
		}, []string{"playbook", "reason"}),
	}
	gauge := func(name, help string, count func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			r.mutex.Lock()
			defer r.mutex.Unlock()
			return float64(count())
		})
	}
	m.registry.MustRegister(m.runs, m.duration, m.waiting, m.hosts,
		gauge("caplv_ansible_queue_length", "Runs that wait.", func() int { return r.queue.Len() }),
		gauge("caplv_ansible_processes", "Processes of ansible-playbook that run.", func() int { return len(r.batches) }))
	return m
}

// Registry has the metrics.
func (r *Runner) Registry() *prometheus.Registry { return r.metrics.registry }

func (m *metrics) waited(d time.Duration) { m.waiting.Observe(d.Seconds()) }

func (m *metrics) ended(status *ansible.Status) {
	playbook, phase := string(status.Playbook), string(status.Phase)
	m.runs.WithLabelValues(playbook, strconv.FormatBool(status.Check), phase).Inc()
	if !status.Started.IsZero() {
		m.duration.WithLabelValues(playbook, phase).Observe(status.Finished.Sub(status.Started).Seconds())
	}
	for _, result := range status.Hosts {
		if result.Phase != ansible.Succeeded {
			m.hosts.WithLabelValues(playbook, string(result.Phase)).Inc()
		}
	}
}
