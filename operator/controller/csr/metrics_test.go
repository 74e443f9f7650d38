// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/caplv/caplv/operator/controller/csr"
)

func TestDecisionsAreCounted(t *testing.T) {
	b := newBench(t, "counted", nil)
	registry := prometheus.NewRegistry()
	b.Expect(csr.RegisterMetrics(registry)).To(Succeed())
	approvals := func() float64 {
		return value(b, registry, "caplv_csr_decisions_total", map[string]string{"kind": "client", "decision": "approve", "reason": "Approved"})
	}
	before := approvals()
	b.expectApproved(b.post(b.client()))
	b.Eventually(approvals, soon).Should(Equal(before + 1))
	b.Expect(value(b, registry, "caplv_csr_pending_limit", nil)).To(BeNumerically(">=", 101))
}

// value is that of the metric with these labels; 0 when there is none.
func value(g Gomega, registry *prometheus.Registry, name string, labels map[string]string) float64 {
	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && hasLabels(m, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

func hasLabels(m *dto.Metric, labels map[string]string) bool {
	for _, label := range m.GetLabel() {
		if labels[label.GetName()] != label.GetValue() {
			return false
		}
	}
	return len(m.GetLabel()) == len(labels)
}
