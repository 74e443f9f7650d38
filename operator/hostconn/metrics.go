// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import "github.com/prometheus/client_golang/prometheus"

const hostLabel = "host"

var (
	execs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "caplv_ssh_execs_total",
		Help: "Commands started on a host over SSH, by LibvirtHost (namespace/name).",
	}, []string{hostLabel})
	dials = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "caplv_ssh_dials_total",
		Help: "SSH connections made to a host, by LibvirtHost (namespace/name).",
	}, []string{hostLabel})
)

// Register adds the metrics of this package to a registry.
func Register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{execs, dials} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func forgetMetrics(key string) {
	execs.DeleteLabelValues(key)
	dials.DeleteLabelValues(key)
}
