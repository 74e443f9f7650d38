// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package ansible

import "errors"

// Reason classifies what a backend could not do.
type Reason string

const (
	// Unavailable surfaces when the backend does not answer: no sidecar on the socket, no AWX at the URL. Try again.
	Unavailable Reason = "BackendUnavailable"
	// Overloaded surfaces when the queue is full. Try again.
	Overloaded Reason = "BackendOverloaded"
	// Rejected surfaces when the backend refuses the request as it is; the message names what to change.
	Rejected Reason = "RunRejected"
	// Unauthorized surfaces when the backend refuses the operator: a token of AWX that is wrong or lacks a right.
	Unauthorized Reason = "BackendUnauthorized"
	// UnknownRun surfaces when the backend has no record of a run.
	UnknownRun Reason = "UnknownRun"
)

// Error is what a backend could not do, and why. Its text has no secrets.
type Error struct {
	Reason  Reason
	Message string
}

func (e *Error) Error() string { return e.Message }

// ReasonOf returns the reason of an error, Unavailable for one that has none.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return Unavailable
}
