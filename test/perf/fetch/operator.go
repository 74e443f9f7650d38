// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/caplv/caplv/operator/artifact"
	"github.com/caplv/caplv/operator/artifact/fetch"
)

// outcome is what the cache took for one file.
type outcome struct {
	Took time.Duration
	// Memory is how many bytes the process needed at most, above what it had before.
	Memory int64
	SHA256 string
}

// order says what to fetch, and where the files of the benchmark are.
type order struct{ URL, Dir string }

// fetchByCache has a new process fetch a file into an empty cache.
func fetchByCache(ctx context.Context, o order) (outcome, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return outcome{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return outcome{}, err
	}
	command := exec.CommandContext(ctx, self)
	command.Env = append(os.Environ(), fetchVariable+"="+string(text))
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return outcome{}, err
	}
	var result outcome
	err = json.Unmarshal(out, &result)
	return result, err
}

// fetchOnce is that process.
func fetchOnce(ctx context.Context, text string) (err error) {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(filepath.Join(o.Dir, certificateFile))
	if err != nil {
		return err
	}
	if !roots.AppendCertsFromPEM(pem) {
		return errors.New("the server's certificate cannot be read")
	}
	dir := filepath.Join(o.Dir, "cache")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cache, err := artifact.NewCache(dir, artifact.Options{Fetch: fetch.Options{RootCAs: roots}})
	if err != nil {
		return err
	}
	idle, err := memory("VmRSS")
	if err != nil {
		return err
	}
	began := time.Now()
	file, err := cache.Get(ctx, fetch.Source{Location: fetch.HTTPS{URL: o.URL}}, nil)
	if err != nil {
		return err
	}
	result := outcome{Took: time.Since(began), SHA256: file.SHA256}
	file.Release()
	peak, err := memory("VmHWM")
	if err != nil {
		return err
	}
	result.Memory = peak - idle
	return json.NewEncoder(os.Stdout).Encode(result)
}

// memory reads a line of /proc/self/status, in bytes.
func memory(name string) (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`(?m)^` + name + `:\s+(\d+) kB$`).FindSubmatch(status)
	if found == nil {
		return 0, fmt.Errorf("/proc/self/status has no %s", name)
	}
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	return kib << 10, err
}
