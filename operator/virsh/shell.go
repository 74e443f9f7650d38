// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"context"
	"sync"
	"time"
)

const defaultIdleTimeout = 10 * time.Second

// Shell is the Client that uses one long-lived virsh.
type Shell struct {
	start   Starter
	command string
	idle    time.Duration

	// busy is held, as the one element of a channel, by the operation at work: a context can end the wait for it.
	busy chan struct{}

	mu      sync.Mutex
	process *process
	timer   *time.Timer
}

var _ Client = &Shell{}

// New returns a Client over start. Nothing is started before the first operation.
func New(start Starter, mode Mode, options Options) *Shell {
	if options.IdleTimeout == 0 {
		options.IdleTimeout = defaultIdleTimeout
	}
	return &Shell{start: start, command: commandFor(mode, options.URI), idle: options.IdleTimeout, busy: make(chan struct{}, 1)}
}

// Close implements Client.
func (s *Shell) Close() error {
	s.drop()
	return nil
}

// with runs an operation on the process, which is started if there is none. An error of the process drops it.
func (s *Shell) with(ctx context.Context, operation func(*process) error) (fresh bool, err error) {
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-s.busy }()
	p := s.take()
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
	s.keep(p)
	return fresh, nil
}

// take removes the process from the shell's keeping.
func (s *Shell) take() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.process
	s.process = nil
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	return p
}

// keep keeps the process for the next operation, and ends it if none comes.
func (s *Shell) keep(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	s.timer = time.AfterFunc(s.idle, s.drop)
}

func (s *Shell) drop() {
	if p := s.take(); p != nil {
		p.close()
	}
}

// read executes reading commands in one go. A process that was kept may have lost its daemon meanwhile; it is replaced
// once.
func (s *Shell) read(ctx context.Context, commands ...command) ([]output, error) {
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

// change executes one command that changes something, with xml in its file if it is not empty. Errors for which accept
// returns true are taken for success.
func (s *Shell) change(ctx context.Context, c command, xml string, accept ...Reason) error {
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
		if ReasonOf(failure) == LibvirtUnavailable {
			return failure
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, reason := range accept {
		if ReasonOf(failure) == reason {
			return nil
		}
	}
	return failure
}

// failure returns the error that a command's output tells of. virsh in this mode has no exit status; it says errors, and
// only errors, on standard error.
func (o output) failure(c command) error {
	if clean(o.stderr) == "" {
		return nil
	}
	return classify(c.verb, o.stderr)
}
