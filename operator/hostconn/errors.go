// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// Reason is why a connection or a command on it failed.
type Reason string

// The reasons.
const (
	// Unauthorized says that the host refused the key for the user.
	Unauthorized Reason = "Unauthorized"
	// HostKeyMismatch says that the host has no key with the pinned fingerprint.
	HostKeyMismatch Reason = "HostKeyMismatch"
	// Unreachable says that there is no connection: name resolution, refusal, no route, or a connection that broke.
	Unreachable Reason = "Unreachable"
	// Timeout says that the host, or the caller's deadline, did not leave enough time.
	Timeout Reason = "Timeout"
	// InvalidKey says that the private key cannot be used.
	InvalidKey Reason = "InvalidKey"
	// Closed says that this side closed the connection or the session. It says nothing about the host.
	Closed Reason = "Closed"
	// Canceled says that the caller's context was canceled. It says nothing about the host.
	Canceled Reason = "Canceled"
)

// Causes of the reason Closed, for errors.Is.
var (
	// ErrClosed says that the Pool was closed.
	ErrClosed = errors.New("the pool of SSH connections is closed")
	// ErrReplaced says that the connection was closed because its host is forgotten or is reached in another way now.
	ErrReplaced = errors.New("the SSH connection was closed because the host was removed or its address, user or key changed")
	// ErrIdle says that the connection was closed because nothing had used it for a while.
	ErrIdle = errors.New("the SSH connection was closed because nothing used it")
	// ErrSessionClosed says that Process.Close came before the end of the command.
	ErrSessionClosed = errors.New("the SSH session was closed")
)

// Error is what failures of the connection are. Its text never holds key material, and it is the same each time for the
// same failure, so that it can stand in a condition.
type Error struct {
	Reason Reason
	// Address is HOST:PORT, or empty where no host was involved.
	Address string
	Err     error
}

func (e *Error) Error() string {
	if e.Address == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s: %v", e.Address, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf returns the reason of an error of this package, and "" for any other.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}

// classify gives an error of the transport or of a context its reason. doing says what failed.
func classify(address, doing string, err error) *Error {
	reason := Unreachable
	switch {
	case errors.Is(err, context.Canceled):
		reason = Canceled
	case timedOut(err):
		reason = Timeout
	}
	return &Error{Reason: reason, Address: address, Err: &failure{doing: doing, err: err}}
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}

// droppedByPeer says whether the other side has closed the TCP connection.
func droppedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// failure is an error of the transport in words that stay the same.
type failure struct {
	doing string
	err   error
}

// Error leaves out what differs between two attempts: the local port, which of two equal deadlines was noticed first,
// and whether the kernel had something to send when the other side closed.
func (f *failure) Error() string {
	text := f.err.Error()
	var op *net.OpError
	switch {
	case timedOut(f.err):
		text = "timed out"
	case droppedByPeer(f.err):
		text = "the host closed the connection"
	case errors.As(f.err, &op) && op.Err != nil:
		text = op.Err.Error()
	}
	return f.doing + ": " + text
}

func (f *failure) Unwrap() error { return f.err }
