// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/caplv/caplv/test/bench/controlplane"
)

// Sidecar is the operator's second container, cmd/ansible-runner, running or killed. It has the playbooks and the Ansible of this repository.
type Sidecar struct {
	cp      *controlplane.ControlPlane
	options Options
	binary  string
	process *controlplane.Process
	starts  atomic.Int32
}

// NewSidecar builds the sidecar in options.Dir, whose path must be short: the socket is below it. It has no flags but those that the bench needs.
func NewSidecar(ctx context.Context, cp *controlplane.ControlPlane, options Options) (*Sidecar, error) {
	s := &Sidecar{cp: cp, options: options, binary: filepath.Join(options.Dir, "ansible-runner")}
	for _, dir := range []string{s.SocketDir(), s.WorkDir(), s.ArtifactsDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "./cmd/ansible-runner")
	build.Dir = options.Repository
	build.Stderr = os.Stderr
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("building the sidecar: %w", err)
	}
	return s, nil
}

// SocketDir has the socket.
func (s *Sidecar) SocketDir() string { return filepath.Join(s.options.Dir, "socket") }

// WorkDir has what runs need while they are under way.
func (s *Sidecar) WorkDir() string { return filepath.Join(s.options.Dir, "runs") }

// ArtifactsDir has what runs leave.
func (s *Sidecar) ArtifactsDir() string { return filepath.Join(s.options.Dir, "artifacts") }

// Socket is what the manager is told as --ansible-runner-socket.
func (s *Sidecar) Socket() string { return filepath.Join(s.SocketDir(), "runner.sock") }

// Start starts the sidecar and waits until it listens.
func (s *Sidecar) Start(ctx context.Context) error {
	flags := []string{
		"--socket=" + s.Socket(), "--work-dir=" + s.WorkDir(), "--artifacts-dir=" + s.ArtifactsDir(),
		"--project=" + s.options.Repository, "--ansible-playbook=" + filepath.Join(s.options.Repository, ".venv", "bin", "ansible-playbook"),
	}
	var err error
	if s.process, err = s.cp.StartProcess(fmt.Sprintf("ansible-runner-%d", s.starts.Add(1)), s.binary, nil, flags...); err != nil {
		return err
	}
	deadline := time.Now().Add(readyTime)
	for time.Now().Before(deadline) {
		select {
		case <-s.process.Done():
			return fmt.Errorf("the sidecar ended; see %s", s.process.LogPath)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		if conn, err := net.Dial("unix", s.Socket()); err == nil { //nolint:noctx // Bounded by the loop.
			return conn.Close()
		}
	}
	return fmt.Errorf("the sidecar did not listen within %s; see %s", readyTime, s.process.LogPath)
}

// Kill ends the sidecar with SIGKILL, and leaves what it has started.
func (s *Sidecar) Kill() { s.process.Kill() }

// Stop ends the sidecar as a Pod's end would.
func (s *Sidecar) Stop() error { return s.process.Stop() }

// Done is closed when the sidecar that was started last has ended.
func (s *Sidecar) Done() <-chan struct{} { return s.process.Done() }

// Pid is the sidecar's.
func (s *Sidecar) Pid() int { return s.process.Pid() }

// LogPath is the log of the sidecar that was started last.
func (s *Sidecar) LogPath() string { return s.process.LogPath }
