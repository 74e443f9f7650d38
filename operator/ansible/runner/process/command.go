// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	ansibleexec "github.com/apenella/go-ansible/v2/pkg/execute/exec"
	"github.com/apenella/go-ansible/v2/pkg/execute/result"
	"golang.org/x/sys/unix"
)

// afterDeath is how long what ansible-playbook has left may go on, once it has ended.
const afterDeath = 2 * time.Second

// executable makes commands for go-ansible that it cannot change: go-ansible gives a *exec.Cmd the caller's environment and standard
// input, and puts the whole command line into errors.
type executable struct {
	spec    *Spec
	command *command
}

func (e *executable) Command(name string, args ...string) ansibleexec.Cmder {
	return e.CommandContext(context.Background(), name, args...)
}

func (e *executable) CommandContext(ctx context.Context, name string, args ...string) ansibleexec.Cmder {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = e.spec.Dir, e.spec.Env
	// Never os.Stdin; nil is /dev/null.
	cmd.Stdin = nil
	cmd.ExtraFiles = []*os.File{e.spec.events}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	e.command = &command{Cmd: cmd, spec: e.spec, gone: make(chan struct{})}
	cmd.Cancel = e.command.end
	return e.command
}

// command is a process with everything that it has started.
type command struct {
	*exec.Cmd

	spec *Spec
	// gone is closed once the process has ended and its output with it.
	gone   chan struct{}
	ending sync.Once
}

// Start starts the process, and sees to it that nothing of it stays when it dies by itself: its output would be held open.
func (c *command) Start() error {
	if err := c.Cmd.Start(); err != nil {
		return err
	}
	pid := c.Process.Pid
	go func() {
		// It only looks; Wait collects the process.
		for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
			continue
		}
		select {
		case <-c.gone:
		case <-time.After(afterDeath):
			End(c.spec.Marker, 0)
		}
	}()
	return nil
}

// Wait returns nil however the process has ended; Exit says how. go-ansible would panic for some errors, and lie about others.
func (c *command) Wait() error {
	defer close(c.gone)
	_ = c.Cmd.Wait()
	return nil
}

// end asks the process group to end, and makes everything end once Grace is over. Since ansible-core 2.19 workers have groups of their own;
// ansible-playbook passes SIGTERM on to them, and who does not end is found by the marker.
func (c *command) end() error {
	c.ending.Do(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
		go func() {
			select {
			case <-c.gone:
			case <-time.After(c.spec.Grace):
				_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
				End(c.spec.Marker, 0)
			}
		}()
	})
	return nil
}

// exit is how the process ended.
func (c *command) exit() Exit {
	state := c.ProcessState
	if state == nil {
		return Exit{Signal: "unknown"}
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return Exit{Code: -1, Signal: status.Signal().String()}
	}
	return Exit{Code: state.ExitCode()}
}

// output passes on what a process prints, without a limit for a line, to its end: a reader that stops would block the process.
type output struct{}

func (output) Print(_ context.Context, reader io.Reader, writer io.Writer, _ ...result.OptionsFunc) error {
	if _, err := io.Copy(writer, reader); err != nil {
		_, _ = io.Copy(io.Discard, reader)
	}
	return nil
}
