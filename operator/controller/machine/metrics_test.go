// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
)

func TestEveryStepIsTimed(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	g.Expect(RegisterMetrics(registry)).To(Succeed())
	stepDuration.Reset()
	t.Cleanup(stepDuration.Reset)
	f := newFakeHost()
	var done Progress
	g.Expect((&Reconciler{}).apply(t.Context(), f, desired(), []Step{{Kind: StepRefreshPool, Pool: "default"}}, &done)).To(Succeed())
	// A step that fails has taken its time as well.
	f.failAt = len(f.steps)
	g.Expect((&Reconciler{}).apply(t.Context(), f, desired(), []Step{{Kind: StepStartDomain}}, &done)).To(MatchError(errInjected))

	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(families).To(HaveLen(1))
	g.Expect(families[0].GetName()).To(Equal("caplv_machine_step_duration_seconds"))
	steps := map[string]uint64{}
	for _, m := range families[0].GetMetric() {
		steps[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
	}
	g.Expect(steps).To(Equal(map[string]uint64{string(StepRefreshPool): 1, string(StepStartDomain): 1}))
}
