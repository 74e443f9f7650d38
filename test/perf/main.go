// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Command perf measures on a real test host how long the operator takes from a LibvirtMachine's creation until it runs,
// next to the same work done by hand over one SSH connection, and what the reconcile of a running machine costs. It needs
// root. What it prints are medians over the rounds; a busy machine makes all of them longer.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const timeLimit = 20 * time.Minute

func main() {
	rounds := flag.Int("rounds", 7, "machines to create for each kind of pool, by the operator and in each way by hand")
	touches := flag.Int("touches", 40, "reconciles of a running machine to take the mean of")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	err := run(ctx, *rounds, *touches)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "perf:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds, touches int) (err error) {
	if rounds < 1 || touches < 1 {
		return errors.New("-rounds and -touches must be at least 1")
	}
	b, err := newBench(ctx)
	defer func() { err = errors.Join(err, b.tearDown()) }()
	if err != nil {
		return err
	}
	for _, ephemeral := range []bool{false, true} {
		c, err := b.compare(ctx, ephemeral, rounds)
		if err != nil {
			return err
		}
		c.print(os.Stdout)
	}
	cost, err := b.reconcileCost(ctx, touches)
	if err != nil {
		return err
	}
	cost.print(os.Stdout)
	return nil
}
