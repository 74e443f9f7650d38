// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"net"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	hostLabel      = "host"
	directionLabel = "direction"
)

var (
	execs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "caplv_ssh_execs_total",
		Help: "Commands started on a host over SSH, by LibvirtHost (namespace/name).",
	}, []string{hostLabel})
	dials = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "caplv_ssh_dials_total",
		Help: "SSH connections made to a host, by LibvirtHost (namespace/name).",
	}, []string{hostLabel})
	bytesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "caplv_ssh_bytes_total",
		Help: "Bytes that went over the SSH connection to a host, by LibvirtHost (namespace/name) and direction (sent or received).",
	}, []string{hostLabel, directionLabel})
)

// Register adds the metrics of this package to a registry.
func Register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{execs, dials, bytesTotal} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func forgetMetrics(key string) {
	execs.DeleteLabelValues(key)
	dials.DeleteLabelValues(key)
	bytesTotal.DeletePartialMatch(prometheus.Labels{hostLabel: key})
}

// traffic counts the bytes of a host's connections. The zero value counts nothing.
type traffic struct{ sent, received prometheus.Counter }

func trafficOf(key string) traffic {
	return traffic{sent: bytesTotal.WithLabelValues(key, "sent"), received: bytesTotal.WithLabelValues(key, "received")}
}

// on returns a connection that is counted.
func (t traffic) on(conn net.Conn) net.Conn {
	if t.sent == nil {
		return conn
	}
	return &countedConn{Conn: conn, traffic: t}
}

type countedConn struct {
	net.Conn
	traffic traffic
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.received.Add(float64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.traffic.sent.Add(float64(n))
	return n, err
}
