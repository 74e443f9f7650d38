// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo shows CAPLV on one Linux machine: a control plane, a host in namespaces of its own, the operator, and the
// objects of operator/config/samples, up to a running virtual machine.
//
//	demo up      brings everything up, shows progress, and returns when the machine runs
//	demo down    removes every trace
//
// Everything runs under one supervisor process in the background, which "up" starts and "down" ends.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/caplv/caplv/test/bench/host"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: demo up|down")
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("the demo makes network namespaces and mounts, which needs root; run it with sudo")
	}
	repository, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(repository, "operator", "config", "samples")); err != nil {
		return fmt.Errorf("run the demo in the root of the repository: %w", err)
	}
	d := &demo{repository: repository, dir: filepath.Join(host.DefaultDir, "demo")}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switch args[0] {
	case "up":
		return d.up(ctx)
	case "down":
		return d.down(ctx)
	case "supervise":
		return d.supervise(ctx)
	}
	return fmt.Errorf("usage: demo up|down")
}

// demo is where the demo lives.
type demo struct {
	repository string
	dir        string
}

func (d *demo) path(name string) string { return filepath.Join(d.dir, name) }
