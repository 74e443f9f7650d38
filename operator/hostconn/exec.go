// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// maxOutput bounds what each output of a command may take of the operator's memory, in bytes.
const maxOutput = 16 << 20

// ErrOutputTooLarge says that a command was ended because it wrote more than 16 MiB to one of its outputs.
var ErrOutputTooLarge = errors.New("the command on the host wrote more than 16 MiB")

// Result is what a command left behind.
type Result struct {
	Stdout, Stderr []byte
	// ExitCode is the exit status, or 128 and the signal's number for a command that a signal ended.
	ExitCode int
}

// Exec runs a command with stdin (nil for none) to its end. A command that fails is a Result, not an error. Errors are of
// type *Error, but for ErrOutputTooLarge and for those of stdin's Read, which end the command. When ctx ends, Exec
// returns at once and the command gets SIGTERM.
//
// A Read of stdin that blocks keeps a goroutine until it returns, also after Exec has returned.
func (c *Conn) Exec(ctx context.Context, command string, stdin io.Reader) (Result, error) {
	p, err := c.start(ctx, command)
	if err != nil {
		return Result{}, err
	}
	type outcome struct {
		result Result
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		result, err := p.run(stdin)
		done <- outcome{result, err}
	}()
	select {
	case o := <-done:
		p.abandon() // Nothing, if it has ended.
		return o.result, o.err
	case <-ctx.Done():
		p.abandon()
		return Result{}, classify(c.address, "running a command over SSH", ctx.Err())
	}
}

// run feeds the command and collects what it writes until it has ended.
func (p *process) run(stdin io.Reader) (Result, error) {
	fed := make(chan error, 1)
	go func() { fed <- p.feed(stdin) }()
	var stdout, stderr bounded
	copied := make(chan error, 2)
	go func() { _, err := io.Copy(&stdout, p.stdout); copied <- err }()
	go func() { _, err := io.Copy(&stderr, p.stderr); copied <- err }()

	for outputs := 2; outputs > 0; {
		select {
		case err := <-fed:
			if err != nil {
				return Result{}, err
			}
			fed = nil // It is over; a nil channel is never ready.
		case err := <-copied:
			if err != nil {
				return Result{}, err
			}
			outputs--
		}
	}
	exit, err := p.Wait()
	if err != nil {
		return Result{}, err
	}
	return Result{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: exit}, nil
}

// feed gives the command its input. It returns errors of the source only: a command may end without reading all of its
// input, and its exit status tells what that means.
func (p *process) feed(stdin io.Reader) error {
	if stdin != nil {
		source := &source{Reader: stdin}
		_, _ = io.Copy(p.stdin, source)
		if source.err != nil {
			// Without the end of input: the command must not take a part for the whole.
			return fmt.Errorf("reading the input of a command: %w", source.err)
		}
	}
	_ = p.stdin.Close()
	return nil
}

// source keeps the errors of reading apart from those of writing.
type source struct {
	io.Reader
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// bounded is a buffer that does not grow for ever.
type bounded struct{ buffer bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.buffer.Len()+len(p) > maxOutput {
		return 0, ErrOutputTooLarge
	}
	return b.buffer.Write(p)
}

func (b *bounded) Bytes() []byte { return b.buffer.Bytes() }
