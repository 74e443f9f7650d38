// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// formats are what a file may be compressed with, and the commands for it.
var formats = []struct{ name, compress, decompress string }{
	{"raw", "cat", "cat"},
	{"gzip", "gzip -1", "gunzip -c"},
	{"zstd", "zstd -q -3 -T0", "zstd -q -dc"},
	{"xz", "xz -1 -T0", "xz -dc"},
}

func measure(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp(o.dir, "caplv-fetch-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(os.Stderr, "making a file of %d MiB\n", o.size)
	if err := makeFile(filepath.Join(dir, "raw"), o.size<<20); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	address, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%d MiB over HTTPS\tcurl | … | sha256sum\tcache\tratio\tcache's memory above idle\n", o.size)
	for _, format := range formats {
		file := filepath.Join(dir, format.name)
		if format.name != "raw" {
			fmt.Fprintf(os.Stderr, "compressing it with %s\n", format.name)
			if err := shell(ctx, nil, format.compress+" -c <"+filepath.Join(dir, "raw")+" >"+file); err != nil {
				return err
			}
		}
		var hand, cache []time.Duration
		var memory int64
		for round := range o.rounds {
			fmt.Fprintf(os.Stderr, "%s, round %d of %d\n", format.name, round+1, o.rounds)
			took, digest, err := byHand(ctx, dir, address+"/"+format.name, format.decompress)
			if err != nil {
				return err
			}
			result, err := fetchByCache(ctx, order{URL: address + "/" + format.name, Dir: dir})
			if err != nil {
				return err
			}
			if result.SHA256 != digest {
				return fmt.Errorf("%s: the cache has %s, and sha256sum says %s", format.name, result.SHA256, digest)
			}
			hand, cache, memory = append(hand, took), append(cache, result.Took), max(memory, result.Memory)
		}
		h, c := median(hand), median(cache)
		fmt.Fprintf(table, "%s\t%.2f s\t%.2f s\t%.2f\t%d MiB\n", format.name, h.Seconds(), c.Seconds(), h.Seconds()/c.Seconds(), memory>>20)
	}
	return table.Flush()
}

// byHand fetches, decompresses and verifies with commands, and returns the digest that they print.
func byHand(ctx context.Context, dir, url, decompress string) (time.Duration, string, error) {
	var out strings.Builder
	began := time.Now()
	err := shell(ctx, &out, "curl -fsS --cacert "+filepath.Join(dir, certificateFile)+" "+url+" | "+decompress+" | sha256sum")
	took := time.Since(began)
	digest, _, _ := strings.Cut(out.String(), " ")
	return took, digest, err
}

func shell(ctx context.Context, out io.Writer, script string) error {
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	command.Stdout, command.Stderr = out, os.Stderr
	return command.Run()
}

// makeFile makes a file that compresses about as an image of a system does: of each 64 KiB, a quarter is noise, a quarter is empty, and the
// rest repeats itself.
func makeFile(path string, size int64) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(file, 1<<20)
	random := rand.NewChaCha8([32]byte{1})
	block := make([]byte, 64<<10)
	for range size / int64(len(block)) {
		_, _ = random.Read(block[:24<<10])
		for i := 32 << 10; i < len(block); i++ {
			block[i] = block[i-(8<<10)-i%3]
		}
		if _, err := w.Write(block); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return errors.Join(w.Flush(), file.Close())
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}
