// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process runs ansible-playbook, and leaves none of its processes behind. The command line is go-ansible's; what go-ansible does
// with processes, environments, outputs and errors is replaced.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/apenella/go-ansible/v2/pkg/execute"
	"github.com/apenella/go-ansible/v2/pkg/playbook"
	"golang.org/x/sys/unix"
)

// EventsFD is the number that the socket for events has in ansible-playbook.
const EventsFD = 3

// maxMessage is more than any message has.
const maxMessage = 64 << 10

// Spec is what to run.
type Spec struct {
	// Program is the path of ansible-playbook, and Playbook that of the playbook.
	Program, Playbook string
	Options           playbook.AnsiblePlaybookOptions
	// Dir is the working directory.
	Dir string
	// Env is the whole environment. It has Marker in one of its values.
	Env []string
	// Marker is a text that no other process has in its environment or command line.
	Marker string
	// Grace is how long the processes may take to end by themselves once ctx is done.
	Grace time.Duration
	// Output receives what is printed, and Tell each message of the callback plugin. Neither is called after Run.
	Output io.Writer
	Tell   func(message []byte)

	events *os.File
}

// Exit is how ansible-playbook ended.
type Exit struct {
	// Code is its exit code. It does not say much: 4, for one, is an unreachable host and an error of syntax.
	Code int
	// Signal is what killed it, if something did.
	Signal string
}

func (e Exit) String() string {
	if e.Signal != "" {
		return "was killed: " + e.Signal
	}
	return fmt.Sprintf("ended with exit code %d", e.Code)
}

// Run runs ansible-playbook until it ends, or until ctx does and it has been ended. Then none of its processes is left here. The error
// says why it could not be started.
func Run(ctx context.Context, spec Spec) (Exit, error) {
	ours, theirs, err := eventSocket()
	if err != nil {
		return Exit{}, err
	}
	spec.events = theirs
	told := make(chan struct{})
	go func() {
		defer close(told)
		receive(ours, spec.Tell)
	}()
	exe := &executable{spec: &spec}
	// Two goroutines write to it.
	shared := &lockedWriter{next: spec.Output}
	runErr := execute.NewDefaultExecute(
		execute.WithCmd(playbook.NewAnsiblePlaybookCmd(
			playbook.WithBinary(spec.Program), playbook.WithPlaybooks(spec.Playbook), playbook.WithPlaybookOptions(&spec.Options))),
		execute.WithExecutable(exe), execute.WithOutput(output{}), execute.WithWrite(shared), execute.WithWriteError(shared),
	).Execute(ctx)
	_ = theirs.Close()
	// Masters of ssh go on by design.
	End(spec.Marker, time.Second)
	// Whoever could still write has ended.
	<-told
	_ = ours.Close()
	if exe.command == nil || exe.command.Process == nil {
		if ctx.Err() != nil {
			return Exit{Signal: "before it began"}, nil //nolint:nilerr // The caller ended ctx, and knows.
		}
		return Exit{}, notStarted(spec.Program, runErr)
	}
	return exe.command.exit(), nil
}

// notStarted does not have go-ansible's error, which repeats the command line; it has the system's.
func notStarted(program string, err error) error {
	if _, statErr := os.Stat(program); statErr != nil {
		return fmt.Errorf("starting ansible-playbook: %w", statErr)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return fmt.Errorf("starting %s: %w", program, errno)
	}
	return fmt.Errorf("%s could not be started", program)
}

// eventSocket returns both ends of a socket that keeps messages apart, so that workers and their parent can share an end.
func eventSocket() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket for events: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "events"), os.NewFile(uintptr(fds[1]), "events of ansible-playbook"), nil
}

func receive(events *os.File, tell func([]byte)) {
	buffer := make([]byte, maxMessage)
	for {
		n, err := events.Read(buffer)
		if err != nil || n == 0 {
			return
		}
		tell(buffer[:n])
	}
}
