// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logging makes the log of a program.
package logging

import (
	"fmt"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New returns a structured logger on standard error and the function that flushes it.
func New(level, format string) (logr.Logger, func(), error) {
	parsed, err := zapcore.ParseLevel(level)
	if err != nil {
		return logr.Logger{}, nil, fmt.Errorf("--log-level: %w", err)
	}
	config := zap.NewProductionConfig()
	config.Level = zap.NewAtomicLevelAt(parsed)
	config.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	// Every reconcile that fails is logged; sampling would hide exactly those of a busy moment.
	config.Sampling = nil
	// Errors of hosts are expected; stack traces of the reconciler would bury them.
	config.DisableStacktrace = true
	switch format {
	case "json":
	case "console":
		config.Encoding = "console"
	default:
		return logr.Logger{}, nil, fmt.Errorf("--log-format is %q; it must be json or console", format)
	}
	z, err := config.Build()
	if err != nil {
		return logr.Logger{}, nil, err
	}
	return zapr.NewLogger(z), func() { _ = z.Sync() }, nil
}
