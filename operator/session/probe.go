// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/caplv/caplv/operator/hostconn"
)

// command runs the script from its standard input. Neither holds anything of an object.
const command = "exec sh -s"

//go:embed facts.sh
var script string

// Transport runs commands on a host; *hostconn.Conn is one.
type Transport interface {
	Exec(ctx context.Context, command string, stdin io.Reader) (hostconn.Result, error)
}

// Query says what the host is to be used for.
type Query struct {
	// VirtType is kvm or qemu. /dev/kvm is only looked at for kvm.
	VirtType string
	// Bridges are names of bridges that machines attach to. Without any, it is enough that the account may use one at all.
	Bridges []string
}

// Piece is something that session mode needs and the host lacks.
type Piece struct {
	// Name is which of the pieces it is, one of the constants Piece….
	Name string
	// Problem says what is wrong with it, and Remedy what to do.
	Problem, Remedy string
}

// The names of the pieces.
const (
	PieceRuntimeDirectory = "runtime directory"
	PieceLinger           = "lingering"
	PieceBridgeHelper     = "bridge helper"
	PieceBridgeACL        = "bridge ACL"
	PieceTun              = "/dev/net/tun"
	PieceKVM              = "/dev/kvm"
	PieceDaemon           = "session daemon"
	PieceBridge           = "bridge"
)

// Error says what is missing for session mode; there is at least one piece.
type Error struct{ Missing []Piece }

func (e *Error) Error() string {
	parts := make([]string, len(e.Missing))
	for i, p := range e.Missing {
		parts[i] = fmt.Sprintf("%s: %s; %s", p.Name, p.Problem, p.Remedy)
	}
	return "the host is not ready for session mode: " + strings.Join(parts, ". ")
}

// OnlyBridges says that nothing is missing but bridges themselves.
func (e *Error) OnlyBridges() bool {
	for _, p := range e.Missing {
		if p.Name != PieceBridge {
			return false
		}
	}
	return true
}

// Probe returns an *Error when the host lacks something, nil when everything is there, and any other error when the host did not
// say, such as those of the transport.
func Probe(ctx context.Context, transport Transport, query Query) error {
	result, err := transport.Exec(ctx, command, strings.NewReader(script))
	if err != nil {
		return err
	}
	f, err := parse(string(result.Stdout))
	if err != nil {
		return fmt.Errorf("asking the host about session mode: %w (status %d: %s)", err, result.ExitCode, printable(string(result.Stderr)))
	}
	if missing := evaluate(f, query); len(missing) > 0 {
		return &Error{Missing: missing}
	}
	return nil
}

// MissingOf returns what an error of Probe says to be missing, and nil for any other error.
func MissingOf(err error) []Piece {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Missing
	}
	return nil
}
