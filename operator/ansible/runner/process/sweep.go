// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// sweepEvery is how often a process that is being ended is looked for.
	sweepEvery = 20 * time.Millisecond
	// sweepFor is how long after SIGKILL: a process may be in the kernel.
	sweepFor = 5 * time.Second
	// minMarker is the length of the shortest marker, in bytes.
	minMarker = 5
)

// Find returns the processes that have a text in their environment or command line, which is what they began with: a process keeps it
// though its parent, its group and its session change. A master of ssh has it in its command line alone.
func Find(marker string) []int {
	var found []int
	// A marker that is everywhere would be the end of everything.
	if len(marker) < minMarker {
		return nil
	}
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(path))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if has(path+"/environ", marker) || has(path+"/cmdline", marker) {
			found = append(found, pid)
		}
	}
	return found
}

// has says whether a file of /proc has a text. A process that is gone, or somebody else's, has none.
func has(path, text string) bool {
	content, err := os.ReadFile(path)
	return err == nil && bytes.Contains(content, []byte(text))
}

// End ends the processes that have a text in their environment or command line: with SIGTERM, and with SIGKILL those that are there after
// a while. It returns how many there were at first.
func End(marker string, grace time.Duration) int {
	first := Find(marker)
	if len(first) == 0 {
		return 0
	}
	for deadline := time.Now().Add(grace); time.Now().Before(deadline); time.Sleep(sweepEvery) {
		if signal(Find(marker), syscall.SIGTERM) == 0 {
			return len(first)
		}
	}
	for deadline := time.Now().Add(sweepFor); time.Now().Before(deadline); time.Sleep(sweepEvery) {
		if signal(Find(marker), syscall.SIGKILL) == 0 {
			break
		}
	}
	return len(first)
}

// signal signals processes, and returns how many of them are alive.
func signal(pids []int, number syscall.Signal) int {
	alive := 0
	for _, pid := range pids {
		if syscall.Kill(pid, number) == nil {
			alive++
		}
	}
	return alive
}

// lockedWriter is for several writers at once.
type lockedWriter struct {
	mutex sync.Mutex
	next  io.Writer
}

func (w *lockedWriter) Write(data []byte) (int, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.next.Write(data)
}
