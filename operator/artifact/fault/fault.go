// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fault is how a failure to fetch or to keep an artifact is told: a reason for a condition, the field that it concerns, and
// the way out. Texts hold no credentials, no user part and no query of a URL, and are the same each time for the same failure.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Reason is the reason of a condition.
type Reason string

// The reasons.
const (
	// InvalidSource says that the description of the source cannot be used.
	InvalidSource Reason = "InvalidSource"
	// InvalidCredentials says that the Secret does not hold what the source needs.
	InvalidCredentials Reason = "InvalidCredentials"
	// Unauthorized says that the server refused the credentials, or wants some.
	Unauthorized Reason = "SourceUnauthorized"
	// NotFound says that the server has no such file, artifact, layer or object.
	NotFound Reason = "SourceNotFound"
	// CertificateInvalid says that the server's certificate was not accepted.
	CertificateInvalid Reason = "SourceCertificateInvalid"
	// RedirectRefused says that the server led to a place that is not followed, such as file: or http:.
	RedirectRefused Reason = "SourceRedirectRefused"
	// Unreachable says that there was no connection, or that it broke too often.
	Unreachable Reason = "SourceUnreachable"
	// Busy says that the server asked to come back later.
	Busy Reason = "SourceBusy"
	// ServerFailed says that the server answered with an error of its own, or with what makes no sense.
	ServerFailed Reason = "SourceFailed"
	// Stalled says that the server sent too little for too long, or that the time for the whole fetch was over.
	Stalled Reason = "SourceStalled"
	// Changing says that the file was replaced again and again while it was being fetched.
	Changing Reason = "SourceChanging"
	// DigestMismatch says that the bytes are not those that were asked for.
	DigestMismatch Reason = "DigestMismatch"
	// TooLarge says that the artifact exceeds a limit, also when only its decompressed form does.
	TooLarge Reason = "ArtifactTooLarge"
	// Invalid says that the bytes cannot be decompressed.
	Invalid Reason = "ArtifactInvalid"
	// ImageInvalid says that the decompressed file is not an image that may be used.
	ImageInvalid Reason = "ImageInvalid"
	// CacheFull says that the cache has no room for the artifact.
	CacheFull Reason = "CacheFull"
	// CacheFailed says that the cache's directory cannot be used.
	CacheFailed Reason = "CacheFailed"
	// Canceled says that nobody waits any more.
	Canceled Reason = "Canceled"
)

// Part is the part of a source that a failure concerns; the caller knows which field of which object that is.
type Part int

// The parts.
const (
	// Other concerns no field.
	Other Part = iota
	// Location is the URL, the reference, or the endpoint, bucket and key.
	Location
	// Digest is the pinned digest.
	Digest
	// Credentials is the reference to the Secret.
	Credentials
	// TLS is the switch for the verification of certificates.
	TLS
)

// Error is every failure of the packages below operator/artifact.
type Error struct {
	Reason Reason
	Part   Part
	// Field is the path of the field in the object that described the source, or empty.
	Field string
	// Message says what happened and what to do about it.
	Message string
	// Retry says that the same request may succeed a little later.
	Retry bool
	// After is how long the server asked to wait, or 0.
	After time.Duration
	// Err is the cause, for errors.Is. Its text is not part of the message, since it may name a URL with secrets in it.
	Err error
}

func (e *Error) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

func (e *Error) Unwrap() error { return e.Err }

// New returns an Error that is not worth another try.
func New(reason Reason, part Part, format string, args ...any) *Error {
	return &Error{Reason: reason, Part: part, Message: fmt.Sprintf(format, args...)}
}

// Transient returns an Error that is worth another try.
func Transient(reason Reason, part Part, cause error, format string, args ...any) *Error {
	return &Error{Reason: reason, Part: part, Message: fmt.Sprintf(format, args...), Err: cause, Retry: true}
}

// Because returns the Error with a cause.
func (e *Error) Because(cause error) *Error {
	e.Err = cause
	return e
}

// ReasonOf returns an error's reason, or an empty one for errors of other packages.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}
