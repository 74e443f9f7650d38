// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long a process may take to end after SIGTERM before it is killed.
const stopGrace = 30 * time.Second

// Process is a child process that dies with its parent.
type Process struct {
	// Name names the process and its log.
	Name string
	// LogPath is the file that receives standard output and standard error.
	LogPath string

	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// StartProcess runs a program beside the control plane, for instance the provider's manager. It logs to <name>.log in
// Options.Dir, where a later process of the same name appends, and is ended by Stop. env is added to the caller's own
// environment. The process ends with the thread that starts it, which the next goroutine may use as well: a test that locks a
// goroutine to a thread has to unlock it in the end, or any process may be killed.
func (cp *ControlPlane) StartProcess(name, path string, env []string, args ...string) (*Process, error) {
	log, err := os.OpenFile(cp.logPath(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	// The child has its own copy of the descriptor.
	defer log.Close()

	p := &Process{Name: name, LogPath: log.Name(), cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	cp.processes.add(p)
	return p, nil
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended, for whatever reason.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the process at once, as a crash would, and waits until it is gone.
func (p *Process) Kill() {
	// An error here says that the process has already ended.
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Stop asks the process to end and waits for it. It returns an error when the process had already failed, ended with
// another status than 0, or had to be killed after 30 seconds.
func (p *Process) Stop() error {
	asked := p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		p.Kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM and was killed", p.Name, stopGrace)
	}
	if p.err == nil {
		return nil
	}
	var exit *exec.ExitError
	if asked == nil && errors.As(p.err, &exit) {
		// A program without a handler for SIGTERM is ended by it, and did what it was asked.
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGTERM {
			return nil
		}
	}
	return fmt.Errorf("%s: %w; see %s", p.Name, p.err, p.LogPath)
}

// processList holds processes in the order in which they were started.
type processList struct {
	mu    sync.Mutex
	items []*Process
}

func (l *processList) add(p *Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, p)
}

// stopAll stops the processes that still run, the latest first. Those that ended before were their owner's concern.
func (l *processList) stopAll() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, p := range slices.Backward(l.items) {
		select {
		case <-p.Done():
		default:
			errs = append(errs, p.Stop())
		}
	}
	l.items = nil
	return errors.Join(errs...)
}
