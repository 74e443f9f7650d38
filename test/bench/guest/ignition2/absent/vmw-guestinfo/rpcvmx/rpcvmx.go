// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rpcvmx stands in for the guest's side of VMware's channel, which a machine of QEMU does not have.
package rpcvmx

import "errors"

var errAbsent = errors.New("this build of Ignition does not support VMware")

// Config has the methods of the real one that Ignition calls.
type Config struct{}

// NewConfig returns a channel on which everything fails.
func NewConfig() *Config { return &Config{} }

// String always fails.
func (*Config) String(string, string) (string, error) { return "", errAbsent }

// SetString always fails.
func (*Config) SetString(string, string) error { return errAbsent }
