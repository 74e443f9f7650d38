// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const defaultIdleTimeout = 10 * time.Second

// Shell is the Client that uses one long-lived virsh.
type Shell struct {
	start   Starter
	mode    Mode
	command string
	idle    time.Duration

	// busy is held, as the one element of a channel, by the operation at work: a context can end the wait for it.
	busy chan struct{}

	mu      sync.Mutex
	process *process
	timer   *time.Timer
	// closings counts the calls of Close: a process that is at work during one is not kept.
	closings int
}

var _ Client = &Shell{}

// New returns a Client over start. Nothing is started before the first operation.
func New(start Starter, mode Mode, options Options) *Shell {
	if options.IdleTimeout == 0 {
		options.IdleTimeout = defaultIdleTimeout
	}
	return &Shell{start: start, mode: mode, command: commandFor(mode, options.URI), idle: options.IdleTimeout, busy: make(chan struct{}, 1)}
}

// Close implements Client.
func (s *Shell) Close() error {
	s.mu.Lock()
	s.closings++
	s.mu.Unlock()
	s.drop()
	return nil
}

// with runs an operation on the process, which is started if there is none. An error of the process drops it.
func (s *Shell) with(ctx context.Context, operation func(*process) error) (fresh bool, err error) {
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("waiting for another operation on the host: %w", ctx.Err())
	}
	defer func() { <-s.busy }()
	p, closings := s.take()
	if p == nil {
		fresh = true
		if p, err = startProcess(ctx, s.start, s.command); err != nil {
			return fresh, err
		}
	}
	if err := operation(p); err != nil {
		p.close()
		return fresh, err
	}
	s.keep(p, closings)
	return fresh, nil
}

// take removes the process from the shell's keeping. It returns the number of closings as well.
func (s *Shell) take() (*process, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.process
	s.process = nil
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	return p, s.closings
}

// keep keeps the process for the next operation, and ends it if none comes, or if the shell was closed meanwhile.
func (s *Shell) keep(p *process, closings int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if closings != s.closings {
		p.close()
		return
	}
	s.process = p
	s.timer = time.AfterFunc(s.idle, s.drop)
}

func (s *Shell) drop() {
	if p, _ := s.take(); p != nil {
		p.close()
	}
}

// read executes reading commands in one go. A process that was kept may have lost its daemon meanwhile; it is replaced
// once.
func (s *Shell) read(ctx context.Context, commands ...command) ([]output, error) {
	for _, c := range commands {
		if c.err != nil {
			return nil, c.err
		}
	}
	var outputs []output
	operation := func(p *process) (err error) {
		outputs, err = p.do(ctx, commands...)
		return err
	}
	fresh, err := s.with(ctx, operation)
	if err != nil && !fresh && ctx.Err() == nil {
		_, err = s.with(ctx, operation)
	}
	return outputs, err
}

// change executes one command that changes something, with xml in its file if it is not empty. A failure is judged by
// what is listed afterwards, if the command has a goal or a rival: virsh says that there is no such domain also when it has just
// lost the daemon, and the daemon's own half of the text is in the host's language.
func (s *Shell) change(ctx context.Context, c command, xml string, judges ...judge) error {
	if c.err != nil {
		return c.err
	}
	var failure error
	_, err := s.with(ctx, func(p *process) error {
		if xml != "" {
			if err := p.put(ctx, xmlFile, xml); err != nil {
				return err
			}
		}
		outputs, err := p.do(ctx, c)
		if err != nil {
			return err
		}
		failure = outputs[0].failure(c)
		for _, j := range judges {
			if failure == nil {
				break
			}
			if failure, err = j(ctx, p, failure); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return failure
}

// failure returns the error that a command's output tells of. virsh in this mode has no exit status; it says errors on
// standard error.
func (o output) failure(c command) error {
	if clean(o.stderr) == "" {
		return nil
	}
	return classify(c.verb, o.stderr)
}
