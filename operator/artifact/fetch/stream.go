// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/caplv/caplv/operator/artifact/fault"
)

// ErrReplaced says that the server has other bytes now than those that were read before. The caller begins again.
var ErrReplaced error = fault.Transient(fault.Changing, fault.Location, nil, "the file was replaced while it was being fetched; "+
	"upload new versions under new names, or wait until the upload has ended")

// ErrNotResumable is the cause of an error in the middle of a file whose server does not say what identifies its bytes. The caller begins again.
var ErrNotResumable = errors.New("the server sends no validator to resume with")

var errStalled = errors.New("too few bytes for too long")

// Stream reads a file to its end over as many connections as that takes.
type Stream struct {
	// Version is what the server said about the bytes.
	Version Version
	// NotModified says that the version that the caller knows is the current one. There is nothing to read then.
	NotModified bool

	//nolint:containedctx // A Reader has no other way to learn that nobody waits.
	ctx     context.Context
	stop    context.CancelFunc
	options Options
	remote  opener
	place   string

	offset   int64
	body     io.ReadCloser
	cancel   context.CancelCauseFunc
	watch    *stallWatch
	pending  error
	failures int
	progress int64
	waits    *backoff.ExponentialBackOff
}

// Open asks for a file, and again where another try may help. The Stream is to be closed. Every error is a *fault.Error; it is ErrReplaced
// when the bytes of ask.Resume are not the server's any more.
func (c *Client) Open(ctx context.Context, s Source, ask Ask) (*Stream, error) {
	remote, err := c.opener(s)
	if err != nil {
		return nil, err
	}
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.Multiplier, waits.MaxInterval = c.options.RetryWait, 2, c.options.RetryMaxWait
	ctx, stop := context.WithCancel(ctx)
	stream := &Stream{ctx: ctx, stop: stop, options: c.options, remote: remote, place: s.Location.String(), waits: waits}
	answer, err := stream.connect(ask)
	if err != nil {
		stop()
		return nil, err
	}
	stream.Version, stream.NotModified = answer.Version, answer.NotModified
	return stream, nil
}

// Offset is how many bytes of the file come before what Read returns next.
func (s *Stream) Offset() int64 { return s.offset }

// connect asks until there is an answer that fits, or none is to be expected.
func (s *Stream) connect(ask Ask) (*Answer, error) {
	for {
		answer, err := s.attempt(ask)
		if err == nil {
			return answer, nil
		}
		if err := s.pause(err); err != nil {
			return nil, err
		}
	}
}

func (s *Stream) attempt(ask Ask) (*Answer, error) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	answer, err := s.remote.Open(ctx, ask)
	if err == nil && !answer.NotModified && answer.Offset != ask.Offset {
		err = skip(answer, ask)
	}
	if err != nil {
		cancel(err)
		return nil, err
	}
	if answer.NotModified {
		cancel(nil)
		return answer, nil
	}
	s.body, s.cancel, s.offset, s.progress = answer.Body, cancel, ask.Offset, 0
	s.watch = newStallWatch(s.options, func() { cancel(errStalled) })
	return answer, nil
}

// skip reads what the caller has already, from a server that cannot leave it out.
func skip(answer *Answer, ask Ask) error {
	if answer.Offset != 0 || !answer.Version.Same(*ask.Resume) || !answer.Version.Resumable {
		answer.Body.Close()
		return ErrReplaced
	}
	if _, err := io.CopyN(io.Discard, answer.Body, ask.Offset); err != nil {
		answer.Body.Close()
		return fault.Transient(fault.Unreachable, fault.Location, err, "the connection broke while the server repeated what is here already")
	}
	return nil
}

// pause waits before the next try, or returns the error that the caller gets.
func (s *Stream) pause(err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if s.ctx.Err() != nil {
		return ended(s.ctx, s.place)
	}
	if !ok || !f.Retry || errors.Is(err, ErrReplaced) || s.failures >= s.options.Retries {
		return err
	}
	if s.failures == 0 {
		s.waits.Reset()
	}
	s.failures++
	wait := max(s.waits.NextBackOff(), min(f.After, s.options.RetryMaxWait))
	select {
	case <-s.ctx.Done():
		return ended(s.ctx, s.place)
	case <-time.After(wait):
		return nil
	}
}

// ended says why a context has ended: because its time was over, or because nobody waits.
func ended(ctx context.Context, place string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.Transient(fault.Stalled, fault.Location, context.Cause(ctx), "the time for fetching %s was over; use a mirror that is nearer or faster", place)
	}
	return fault.New(fault.Canceled, fault.Other, "the fetch was canceled").Because(context.Cause(ctx))
}

// Read reads on, over a new connection where the old one broke. Its errors are io.EOF and those of Open.
func (s *Stream) Read(p []byte) (int, error) {
	for {
		if s.pending == nil {
			n, err := s.readOnce(p)
			s.pending = err
			if n > 0 {
				return n, nil
			}
			if err == nil {
				continue
			}
		}
		if errors.Is(s.pending, io.EOF) && (s.Version.Size < 0 || s.offset == s.Version.Size) {
			return 0, io.EOF
		}
		if err := s.reconnect(); err != nil {
			return 0, err
		}
	}
}

func (s *Stream) readOnce(p []byte) (int, error) {
	s.watch.begin()
	n, err := s.body.Read(p)
	s.watch.end(n)
	s.offset += int64(n)
	s.progress += int64(n)
	if s.progress >= s.options.StallBytes {
		s.failures = 0
	}
	if s.Version.Size >= 0 && s.offset > s.Version.Size {
		return 0, fault.New(fault.ServerFailed, fault.Location, "%s sends more bytes than it had announced", s.place)
	}
	return n, err
}

func (s *Stream) reconnect() error {
	broken := s.brokenBy(s.pending)
	s.disconnect()
	if err := s.pause(broken); err != nil {
		return err
	}
	if s.offset > 0 && !s.Version.Resumable {
		return broken.Because(ErrNotResumable)
	}
	answer, err := s.connect(Ask{Resume: &s.Version, Offset: s.offset})
	if err != nil {
		return err
	}
	if s.offset == 0 {
		s.Version = answer.Version
	}
	s.pending = nil
	return nil
}

// brokenBy says what ended a connection in the middle of a file.
func (s *Stream) brokenBy(err error) *fault.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if s.watch.stalled.Load() {
		return fault.Transient(fault.Stalled, fault.Location, errStalled, "%s sends fewer than %d bytes in %s; use a mirror that is nearer or faster",
			s.place, s.options.StallBytes, s.options.StallWindow)
	}
	return fault.Transient(fault.Unreachable, fault.Location, err, "the connection to %s broke before the file's end, again and again; check the network and the proxy", s.place)
}

func (s *Stream) disconnect() {
	if s.body != nil {
		s.cancel(nil)
		s.body.Close()
		s.watch.stop()
		s.body = nil
	}
}

// Interrupt has a Read that goes on in another goroutine return soon, with an error.
func (s *Stream) Interrupt() { s.stop() }

// Close ends the connection.
func (s *Stream) Close() error {
	s.stop()
	s.disconnect()
	return nil
}
