// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosthelper

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// sandbox is a mount namespace in which /run is an empty tmpfs of root and the root file system is read-only.
type sandbox struct {
	t      testing.TB
	enter  []string
	helper string
}

// result is what a program did.
type result struct {
	Stdout, Stderr string
	Exit           int
}

// newSandbox starts the sandbox's first process, which lives until the test ends. Somebody who is not root becomes root
// of a user namespace.
func newSandbox(t testing.TB) *sandbox {
	t.Helper()
	helper, err := filepath.Abs("../../roles/host_helper/files/caplv-hostctl")
	if err != nil {
		t.Fatal(err)
	}
	args, enter := []string{"--mount", "--propagation", "private"}, []string{"--mount"}
	if os.Geteuid() != 0 {
		args = append(args, "--map-root-user")
		enter = append(enter, "--user", "--preserve-credentials")
	}
	// The mount of / may be locked in a user namespace; for root, a write outside of /run fails.
	script := `mount -n -t tmpfs -o mode=755 tmpfs /run && { mount -n -o remount,bind,ro / || [ $# = 1 ]; } && echo ready && exec cat`
	args = append(args, "sh", "-c", script, "sh")
	if os.Geteuid() != 0 {
		args = append(args, "unprivileged")
	}
	cmd := exec.Command("unshare", args...) //nolint:noctx // It ends when its standard input does.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	if n, err := io.ReadFull(stdout, make([]byte, len("ready\n"))); err != nil {
		_ = stdin.Close()
		_ = cmd.Wait()
		t.Fatalf("this needs root, or user namespaces for everybody: read %d bytes (%v): %s", n, err, &stderr)
	}
	enter = append([]string{"--target", strconv.Itoa(cmd.Process.Pid)}, enter...)
	return &sandbox{t: t, enter: append(enter, "--"), helper: helper}
}

// command is a program in the sandbox.
func (s *sandbox) command(argv ...string) *exec.Cmd {
	return exec.CommandContext(s.t.Context(), "nsenter", append(append([]string{}, s.enter...), argv...)...)
}

func (s *sandbox) run(cmd *exec.Cmd) result {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// sh runs a shell script in the sandbox and returns what it printed. It has to succeed.
func (s *sandbox) sh(script string) string {
	s.t.Helper()
	r := s.run(s.command("sh", "-euc", script))
	if r.Exit != 0 {
		s.t.Fatalf("exit status %d of %q: %s", r.Exit, script, r.Stderr)
	}
	return r.Stdout
}

// send gives a request to the helper.
func (s *sandbox) send(request string, args ...string) result {
	s.t.Helper()
	cmd := s.command(append([]string{s.helper}, args...)...)
	cmd.Stdin = strings.NewReader(request)
	return s.run(cmd)
}

// mountsBelowRun is a command that prints the lines of mountinfo for what is mounted in the sandbox's /run. What the machine has
// in its own one, such as network namespaces, is below, and comes first.
const mountsBelowRun = `awk '$5 == "/run" { n = 0 } $5 ~ "^/run/" { line[n++] = $0 } END { for (i = 0; i < n; i++) print line[i] }' /proc/self/mountinfo`

// tree lists /run with types, modes, link targets and mounts.
func (s *sandbox) tree() string {
	s.t.Helper()
	return s.sh(`find /run -mindepth 1 -printf '%y %m %P %l\n' | sort; ` + mountsBelowRun + ` | grep -o ' /run/.*' || :`)
}

// request is a request without payload.
func request(verb string, keys ...string) string {
	return "caplv-hostctl/1\n" + verb + "\n" + strings.Join(append(keys, ""), "\n") + "\n"
}

// stage is a request to stage a file; further keys come before those of the file.
func stage(payload string, keys ...string) string {
	digest := sha256.Sum256([]byte(payload))
	keys = append(keys, "file=ignition.json", fmt.Sprintf("bytes=%d", len(payload)), "sha256="+hex.EncodeToString(digest[:]))
	return request("stage", keys...) + payload
}
