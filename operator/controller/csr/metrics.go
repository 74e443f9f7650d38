// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caplv/caplv/operator/csr"
)

var (
	decisions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "caplv_csr_decisions_total",
		Help: "Decisions about requests for kubelet certificates, by kind (client, serving), decision (approve, wait, ignore) and reason. One that is repeated counts once.",
	}, []string{"kind", "decision", "reason"})
	pendingRequests = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "caplv_csr_pending",
		Help: "Requests for kubelet certificates that are pending and younger than an hour, whoever may approve them.",
	})
	pendingLimit = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "caplv_csr_pending_limit",
		Help: "Pending requests above which nothing is approved.",
	})
)

// RegisterMetrics adds the metrics of this package to a registry.
func RegisterMetrics(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{decisions, pendingRequests, pendingLimit} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func countDecision(serving bool, d csr.Decision) {
	kind := "client"
	if serving {
		kind = "serving"
	}
	decisions.WithLabelValues(kind, string(d.Outcome), string(d.Reason)).Inc()
}
