// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/caplv/caplv/test/bench/host"
)

const (
	// The supervisor writes its progress line by line; the last line is one of these words.
	wordReady  = "ready"
	wordFailed = "failed"
)

// up starts the supervisor and shows its progress.
func (d *demo) up(ctx context.Context) error {
	if pid, running := d.supervisor(); running {
		return fmt.Errorf("the demo is up already (process %d); end it with: make demo-down", pid)
	}
	if err := d.installPackages(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	// "go run" deletes its binary at the end; the supervisor needs one that stays.
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := copyFile(self, d.path("supervisor"), 0o700); err != nil {
		return err
	}
	for _, name := range []string{"progress", "pid"} {
		if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	log, err := os.Create(d.path("supervisor.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	supervisor := exec.Command(d.path("supervisor"), "supervise") //nolint:noctx // It outlives this process.
	supervisor.Dir = d.repository
	supervisor.Stdout, supervisor.Stderr = log, log
	supervisor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := supervisor.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(d.path("pid"), []byte(strconv.Itoa(supervisor.Process.Pid)), 0o600); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = supervisor.Wait() // What it has to say is in its log.
		close(ended)
	}()
	return d.follow(ctx, ended)
}

// installPackages installs what is missing, or says what is.
func (d *demo) installPackages(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, filepath.Join(d.repository, "test", "bench", "packages.sh"), "--install")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// follow prints the progress file as it grows, until the supervisor is done or dead.
func (d *demo) follow(ctx context.Context, ended <-chan struct{}) error {
	shown := 0
	for dead := false; ; {
		// It is short; reading it anew each time is simpler than following it.
		content, err := os.ReadFile(d.path("progress"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for {
			line, _, complete := strings.Cut(string(content[min(shown, len(content)):]), "\n")
			if !complete {
				break
			}
			shown += len(line) + 1
			switch line {
			case wordReady:
				return nil
			case wordFailed:
				return fmt.Errorf("the demo did not come up; see %s, then clean up with: make demo-down", d.path("supervisor.log"))
			}
			fmt.Println(line)
		}
		if dead {
			return fmt.Errorf("the demo's supervisor ended; see %s, then clean up with: make demo-down", d.path("supervisor.log"))
		}
		select {
		case <-ctx.Done():
			return errors.New("interrupted; the demo goes on in the background; end it with: make demo-down")
		case <-ended:
			dead = true
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// supervisor returns the pid of the supervisor and whether it runs.
func (d *demo) supervisor() (int, bool) {
	content, err := os.ReadFile(d.path("pid"))
	if err != nil {
		return 0, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0, false
	}
	// A pid may have been used again: only a process with the supervisor's own binary is it.
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return pid, err == nil && strings.TrimSuffix(exe, " (deleted)") == d.path("supervisor")
}

// down ends the supervisor, which takes everything down, and does by itself what a supervisor that died has left.
func (d *demo) down(ctx context.Context) error {
	if pid, running := d.supervisor(); running {
		fmt.Println("Stopping the demo …")
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			return err
		}
		deadline := time.Now().Add(2 * time.Minute)
		for time.Now().Before(deadline) {
			if _, running := d.supervisor(); !running {
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
		if _, running := d.supervisor(); running {
			// Its children have asked to die with it.
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if _, err := os.Stat(d.dir); errors.Is(err, os.ErrNotExist) {
		fmt.Println("The demo is not up.")
		return nil
	}
	hosts, err := host.New(d.repository, d.path("hosts"))
	if err != nil {
		return err
	}
	if err := hosts.DownAll(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(d.dir); err != nil {
		return err
	}
	// Gone when nothing else uses the bench.
	_ = os.Remove(host.DefaultDir)
	fmt.Println("The demo is gone.")
	return nil
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
