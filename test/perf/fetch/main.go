// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Command fetch measures how long the cache of artifacts takes to fetch, decompress, verify and keep a file, next to
// curl | gunzip | sha256sum, which keeps nothing, and how much memory that takes. Server, cache and commands are
// processes of their own. What it prints are medians over the rounds; a busy machine makes all of them longer.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// The environment variables that make this program one of its own helpers.
const (
	serveVariable = "CAPLV_PERF_SERVE"
	fetchVariable = "CAPLV_PERF_FETCH"
)

func main() {
	o := options{}
	flag.Int64Var(&o.size, "size", 1<<10, "size of the decompressed file in MiB")
	flag.IntVar(&o.rounds, "rounds", 5, "times to measure each way")
	flag.StringVar(&o.dir, "dir", "", "directory for the files, with room for six of them; the default is that of temporary files")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		os.Exit(1)
	}
}

type options struct {
	size   int64
	rounds int
	dir    string
}

func run(ctx context.Context, o options) error {
	switch {
	case os.Getenv(serveVariable) != "":
		return serve(ctx, os.Getenv(serveVariable))
	case os.Getenv(fetchVariable) != "":
		return fetchOnce(ctx, os.Getenv(fetchVariable))
	case o.size < 1 || o.rounds < 1:
		return errors.New("-size and -rounds must be at least 1")
	}
	return measure(ctx, o)
}
