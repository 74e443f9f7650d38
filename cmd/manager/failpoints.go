// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build failpoints

package main

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/caplv/caplv/operator/controller/machine"
)

// failPointFile names the variable with the path of a file that lists, one a line, the fail points at which the manager
// has ended. It ends itself, with SIGKILL, at every point that the file does not list yet, and adds it before: a test that
// starts it again and again takes it through all points of a life, once each. The manager ignores its fail points while
// the variable is empty.
const failPointFile = "CAPLV_FAILPOINT_FILE"

// failPoint is what the machine reconciler tells of its fail points.
func failPoint() func(machine.FailPoint) {
	path := os.Getenv(failPointFile)
	if path == "" {
		return nil
	}
	var mu sync.Mutex
	return func(point machine.FailPoint) {
		mu.Lock()
		defer mu.Unlock()
		first, err := record(path, string(point))
		if err != nil {
			panic(fmt.Sprintf("recording fail point %s: %v", point, err))
		}
		if first {
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
			select {} // Nothing may happen between the signal and its effect.
		}
	}
}

// record adds a point to the file and returns true, unless it is there.
func record(path, point string) (bool, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600) //nolint:gosec // The test that starts the manager chooses the file.
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if lines.Text() == point {
			return false, nil
		}
	}
	if err := lines.Err(); err != nil {
		return false, err
	}
	if _, err := fmt.Fprintln(f, point); err != nil {
		return false, err
	}
	return true, f.Close()
}
