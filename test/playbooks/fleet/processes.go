// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caplv/caplv/operator/ansible/runner/process"
)

// Usage is the most that was seen of a sidecar's processes at one time.
type Usage struct {
	// Playbooks are the processes of ansible-playbook that the sidecar has started, and Processes all of them, with workers and ssh.
	Playbooks, Processes int
	// Memory is what the sidecar and all of them use, in bytes, where what several share counts once (PSS).
	Memory int64
}

// Watch watches the processes of a sidecar, by the text that marks them, until the returned function is called.
func Watch(pid int, marker string, every time.Duration) func() Usage {
	var most Usage
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			now := look(pid, marker)
			most.Playbooks, most.Processes = max(most.Playbooks, now.Playbooks), max(most.Processes, now.Processes)
			most.Memory = max(most.Memory, now.Memory)
			select {
			case <-done:
				return
			case <-time.After(every):
			}
		}
	})
	return func() Usage {
		close(done)
		watching.Wait()
		return most
	}
}

func look(sidecar int, marker string) Usage {
	u := Usage{Memory: memory(sidecar)}
	for _, pid := range process.Find(marker) {
		if pid == sidecar {
			continue
		}
		u.Processes++
		u.Memory += memory(pid)
		if parent(pid) == sidecar {
			u.Playbooks++
		}
	}
	return u
}

func parent(pid int) int {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// The name, in parentheses, may have spaces.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	number, _ := strconv.Atoi(fields[1])
	return number
}

// memory is a process's proportional set size, in bytes.
func memory(pid int) int64 {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(content)) {
		if rest, found := strings.CutPrefix(line, "Pss:"); found {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib << 10
		}
	}
	return 0
}
