// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runner tests the sidecar: the program as it is shipped, real Ansible, and real SSH servers.
package runner

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/sidecar"
	"github.com/caplv/caplv/test/playbooks/fleet"
)

// soon is for what takes a moment, also on a busy machine.
const soon = 60 * time.Second

var suite struct {
	repository, program string
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if suite.repository, err = filepath.Abs("../../.."); err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		return 1
	}
	dir, err := os.MkdirTemp("", "caplv-runner-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	suite.program = filepath.Join(dir, "ansible-runner")
	build := exec.Command("go", "build", "-o", suite.program, "./cmd/ansible-runner")
	build.Dir = suite.repository
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "runner: building ansible-runner: %v\n%s", err, output)
		return 1
	}
	return m.Run()
}

// service is a sidecar.
type service struct {
	*sidecar.Client

	t    *testing.T
	dir  string
	args []string
	cmd  *exec.Cmd
	done chan struct{}
	log  lockedBuffer
}

// start starts a sidecar, with more arguments, that goes with the test.
func start(t *testing.T, args ...string) *service {
	t.Helper()
	// A directory of a test has too long a name for sockets of ssh.
	dir, err := os.MkdirTemp("", "caplv") //nolint:usetesting // The name of a test's directory is too long for sockets.
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &service{t: t, dir: dir, args: args}
	t.Cleanup(func() {
		s.kill(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("ansible-runner wrote:\n%s", s.log.String())
		}
	})
	s.start()
	return s
}

func (s *service) socket() string  { return filepath.Join(s.dir, "s", "runner.sock") }
func (s *service) workDir() string { return filepath.Join(s.dir, "w") }
func (s *service) artifact(key, name string) string {
	return filepath.Join(s.dir, "a", "runs", key, name)
}

// start starts the program, also again, and waits until it answers.
func (s *service) start() {
	s.t.Helper()
	g := NewWithT(s.t)
	s.cmd = exec.Command(suite.program, append([]string{
		"--socket", s.socket(), "--work-dir", s.workDir(), "--artifacts-dir", filepath.Join(s.dir, "a"), "--project", suite.repository,
		"--playbooks", filepath.Join(suite.repository, "test", "playbooks", "runner", "playbooks"),
		"--ansible-playbook", filepath.Join(suite.repository, ".venv", "bin", "ansible-playbook"), "--log-level", "debug",
		"--grace", "10s", "--batch-window", "0s", "--connect-timeout", "10s",
	}, s.args...)...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	g.Expect(s.cmd.Start()).To(Succeed())
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait()
	}()
	s.Client = sidecar.New(s.socket())
	g.Eventually(func() ansible.Reason {
		_, err := s.Status(context.Background(), ansible.Ref{Key: "none"})
		return ansible.ReasonOf(err)
	}, soon, 20*time.Millisecond).Should(Equal(ansible.UnknownRun), s.log.String)
}

// kill ends the program and waits for its end.
func (s *service) kill(signal syscall.Signal) {
	_ = s.cmd.Process.Signal(signal)
	<-s.done
}

// submit asks for a run.
func (s *service) submit(request ansible.Request) ansible.Ref {
	s.t.Helper()
	ref, err := s.Submit(s.t.Context(), request)
	NewWithT(s.t).Expect(err).NotTo(HaveOccurred())
	return ref
}

// status is how far a run is.
func (s *service) status(key string) ansible.Status {
	s.t.Helper()
	status, err := s.Status(s.t.Context(), ansible.Ref{Key: key})
	NewWithT(s.t).Expect(err).NotTo(HaveOccurred())
	return status
}

// ended waits for the end of a run, through its events, and returns its status with them.
func (s *service) ended(key string) (ansible.Status, []ansible.Event) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	var events []ansible.Event
	err := s.Follow(ctx, ansible.Ref{Key: key}, 0, func(event ansible.Event) { events = append(events, event) })
	NewWithT(s.t).Expect(err).NotTo(HaveOccurred())
	return s.status(key), events
}

// until waits until a run is so far.
func (s *service) until(key string, so func(ansible.Status) bool) {
	s.t.Helper()
	NewWithT(s.t).Eventually(func() bool { return so(s.status(key)) }, soon, 50*time.Millisecond).Should(BeTrue(), func() string {
		return fmt.Sprintf("%+v", s.status(key))
	})
}

// server starts an SSH server that goes with the test.
func server(t *testing.T, o fleet.Options) *fleet.Server {
	t.Helper()
	s, err := servers(t).Start(o)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return s
}

// servers starts SSH servers that go with the test. Other accounts may read their files, as those of a host's.
func servers(t *testing.T) *fleet.Fleet {
	t.Helper()
	g := NewWithT(t)
	dir, err := os.MkdirTemp("", "caplv-fleet-") //nolint:usetesting // A test's directory is its owner's alone.
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.Chmod(dir, 0o755)).To(Succeed())
	f := fleet.New(dir)
	t.Cleanup(func() {
		f.Close()
		_ = os.RemoveAll(dir)
	})
	return f
}

// request asks for a playbook on hosts.
func request(key string, playbook ansible.Playbook, variables map[string]any, hosts ...ansible.Host) ansible.Request {
	return ansible.Request{Key: key, Playbook: playbook, Variables: variables, Hosts: hosts, Deadline: 2 * time.Minute, Submitted: time.Now()}
}

// lockedBuffer is for a writer and a reader at once.
type lockedBuffer struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(data []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.Write(data)
}

func (b *lockedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.String()
}
