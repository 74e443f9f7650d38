// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"net/http"
	"strconv"
	"time"

	"github.com/caplv/caplv/operator/artifact/fault"
)

// statusFault says what an answer means that is no file.
func statusFault(response *http.Response, place string, authenticated bool) error {
	f := statusCode(response.StatusCode, place, authenticated)
	f.After = retryAfter(response.Header.Get("Retry-After"), time.Now())
	return f
}

func statusCode(status int, place string, authenticated bool) *fault.Error {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusProxyAuthRequired:
		if authenticated {
			return fault.New(fault.Unauthorized, fault.Credentials, "%s refuses the credentials of the Secret (%d); put ones into it that may read the file", place, status)
		}
		return fault.New(fault.Unauthorized, fault.Credentials, "%s lets nobody read this without credentials (%d); name a Secret with some", place, status)
	case status == http.StatusNotFound || status == http.StatusGone:
		return fault.New(fault.NotFound, fault.Location, "%s has nothing there (%d); check the spelling, and that it was uploaded", place, status)
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return fault.Transient(fault.Busy, fault.Location, nil, "%s is busy (%d); it is asked again later", place, status)
	case status == http.StatusRequestTimeout || status >= 500:
		return fault.Transient(fault.ServerFailed, fault.Location, nil, "%s failed (%d); look into its log", place, status)
	default:
		return fault.New(fault.ServerFailed, fault.Location, "%s answered with the status %d, which is none for a file; check the address", place, status)
	}
}

// retryAfter reads a header of seconds or of a date.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(0, date.Sub(now))
	}
	return 0
}
