// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What takes time on a host besides the steps of a plan.
const (
	timedConnect = "Connect"
	timedObserve = "Observe"
)

// stepDuration covers from a command in a running virsh, 1 ms, to more than a reconcile may take on a host.
var stepDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "caplv_machine_step_duration_seconds",
	Help:    "Time that a step of a LibvirtMachine took on its host, also if it failed: Connect, Observe, or the step of a plan.",
	Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
}, []string{"step"})

// RegisterMetrics adds the metrics of this package to a registry.
func RegisterMetrics(r prometheus.Registerer) error { return r.Register(stepDuration) }

// timed begins to measure a step. The function that it returns ends that.
func timed(step string) func() {
	start := time.Now()
	return func() { stepDuration.WithLabelValues(step).Observe(time.Since(start).Seconds()) }
}
