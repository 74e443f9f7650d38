// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is how the sidecar and its client talk: HTTP and JSON over a Unix socket.
//
//	POST   /v1/runs                      ansible.Request → ansible.Ref
//	GET    /v1/runs/{key}                → ansible.Status
//	GET    /v1/runs/{key}/events?after=N → ansible.Events, one a line, until the run has ended
//	DELETE /v1/runs/{key}                cancels
//	GET    /healthz
//	GET    /metrics                      for Prometheus, unless they have a port of their own
//
// A request that fails is answered with a Failure.
package api

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/caplv/caplv/operator/ansible"
)

// Runs is the path of all runs.
const Runs = "/v1/runs"

// MaxBody is the size of the largest request, in bytes.
const MaxBody = 4 << 20

// Run is the path of one run.
func Run(key string) string { return Runs + "/" + url.PathEscape(key) }

// Events is the path of the events of a run with a Sequence above after.
func Events(key string, after int64) string {
	return Run(key) + "/events?after=" + strconv.FormatInt(after, 10)
}

// Failure is the answer to a request that failed.
type Failure struct {
	Reason  ansible.Reason `json:"reason"`
	Message string         `json:"message"`
}

// StatusOf is the HTTP status of an answer with this reason.
func StatusOf(reason ansible.Reason) int {
	switch reason {
	case ansible.Overloaded:
		return http.StatusTooManyRequests
	case ansible.Rejected:
		return http.StatusUnprocessableEntity
	case ansible.Unauthorized:
		return http.StatusForbidden
	case ansible.UnknownRun:
		return http.StatusNotFound
	default:
		return http.StatusServiceUnavailable
	}
}
