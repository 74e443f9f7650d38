// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostevents

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	streams = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "caplv_host_event_streams",
		Help: "Hosts from which libvirt's events are being read.",
	})
	// events has libvirt's own kinds, of which those that are counted are few.
	events = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "caplv_domain_events_total",
		Help: "Events of libvirt that woke a LibvirtMachine, by kind.",
	}, []string{"event"})
)

// RegisterMetrics adds the metrics of this package to a registry.
func RegisterMetrics(r prometheus.Registerer) error {
	return errors.Join(r.Register(streams), r.Register(events))
}
