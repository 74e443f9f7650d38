// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tftp stands in for the TFTP client of Ignition, which a test guest never uses: it has no server to ask.
package tftp

import (
	"errors"
	"io"
)

var errAbsent = errors.New("this build of Ignition has no TFTP")

// Client has the methods of the real client that Ignition calls.
type Client struct{}

// NewClient always fails.
func NewClient(string) (*Client, error) { return nil, errAbsent }

// Receive always fails.
func (*Client) Receive(string, string) (io.WriterTo, error) { return nil, errAbsent }
