// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	// sessionRetryPause is the first pause after a refused session; it doubles up to sessionRetryMaxPause.
	sessionRetryPause    = 50 * time.Millisecond
	sessionRetryMaxPause = 500 * time.Millisecond
)

// Process is a command that runs on the host.
type Process interface {
	// Stdin is the command's standard input; closing it ends most commands.
	Stdin() io.WriteCloser
	// Stdout is the command's standard output. It has to be read: a command whose output nobody reads stops.
	Stdout() io.Reader
	// Stderr is the command's standard error, to be read as well.
	Stderr() io.Reader
	// Wait waits for the end of the command and returns its exit status, which is 128 and the signal's number for a
	// command that a signal ended. Errors are of type *Error. It may be called more than once.
	Wait() (int, error)
	// Close ends the session without waiting for the command, which sees the end of its input and cannot write any more.
	Close() error
}

// Start starts a command. ctx bounds the start alone: a started command outlives it and is ended with Process.Close. It waits for a
// free session. Errors are of type *Error.
func (c *Conn) Start(ctx context.Context, command string) (Process, error) {
	p, err := c.start(ctx, command)
	if err != nil {
		return nil, err // Not p: a nil *process is not a nil Process.
	}
	return p, nil
}

func (c *Conn) start(ctx context.Context, command string) (*process, error) {
	if err := c.acquire(ctx); err != nil {
		return nil, err
	}
	type result struct {
		process *process
		err     error
	}
	// A host that does not answer holds this goroutine until a keepalive fails, but not the caller.
	opened := make(chan result, 1)
	go func() {
		p, err := c.open(ctx, command)
		opened <- result{p, err}
	}()
	select {
	case r := <-opened:
		if r.err != nil {
			c.release()
		}
		return r.process, r.err
	case <-ctx.Done():
		go func() {
			if r := <-opened; r.err == nil {
				r.process.abandon()
			} else {
				c.release()
			}
		}()
		return nil, classify(c.address, "starting a command over SSH", ctx.Err())
	}
}

// open opens a session in the slot that the caller has acquired, and starts the command in it.
func (c *Conn) open(ctx context.Context, command string) (*process, error) {
	session, err := c.openSession(ctx)
	if err != nil {
		return nil, err
	}
	p := &process{conn: c, session: session, closed: make(chan struct{}), exited: make(chan struct{})}
	var pipes [3]error
	p.stdin, pipes[0] = session.StdinPipe()
	p.stdout, pipes[1] = session.StdoutPipe()
	p.stderr, pipes[2] = session.StderrPipe()
	if err := errors.Join(pipes[:]...); err != nil {
		_ = session.Close()
		return nil, classify(c.address, "opening an SSH session", err)
	}
	execs.WithLabelValues(c.key).Inc()
	if err := session.Start(command); err != nil {
		_ = session.Close()
		c.ping()
		if cause := c.failure(); cause != nil {
			return nil, cause
		}
		// The library's error repeats the command, which belongs in no condition.
		return nil, &Error{Reason: Unreachable, Address: c.address, Err: errors.New(
			"the host refused to run a command over SSH; allow commands for this key and account")}
	}
	go p.reap()
	return p, nil
}

// openSession opens a session, and waits a little for a server that has as many sessions as it allows.
func (c *Conn) openSession(ctx context.Context) (*ssh.Session, error) {
	deadline := time.Now().Add(c.options.sessionRetry)
	for pause := sessionRetryPause; ; pause = min(2*pause, sessionRetryMaxPause) {
		session, err := c.client.NewSession()
		if err == nil {
			return session, nil
		}
		if _, refused := errors.AsType[*ssh.OpenChannelError](err); !refused {
			c.breakOff(err)
			return nil, c.failure()
		}
		if time.Now().After(deadline) {
			return nil, &Error{Reason: Unreachable, Address: c.address, Err: fmt.Errorf(
				"the host opens no more SSH sessions on this connection; raise MaxSessions of its sshd (OpenSSH's default is 10, %d are used here): %w",
				c.options.MaxSessions, err)}
		}
		timer := time.NewTimer(pause/2 + rand.N(pause)) //nolint:gosec // Jitter needs no secrecy.
		select {
		case <-timer.C:
		case <-c.done:
			timer.Stop()
			return nil, c.failure()
		case <-ctx.Done():
			timer.Stop()
			return nil, classify(c.address, "waiting for the host to open an SSH session", ctx.Err())
		}
	}
}

type process struct {
	conn           *Conn
	session        *ssh.Session
	stdin          io.WriteCloser
	stdout, stderr io.Reader

	closing, releasing sync.Once
	closed             chan struct{} // Closed by Close and abandon.
	exited             chan struct{} // Closed when exit and err are set.
	exit               int
	err                error
}

func (p *process) Stdin() io.WriteCloser { return p.stdin }
func (p *process) Stdout() io.Reader     { return p.stdout }
func (p *process) Stderr() io.Reader     { return p.stderr }

func (p *process) Wait() (int, error) {
	select {
	case <-p.exited:
	case <-p.closed:
		// A command that had ended before it was closed has an exit status.
		select {
		case <-p.exited:
		default:
			return -1, p.closedError()
		}
	}
	return p.exit, p.err
}

func (p *process) Close() error {
	p.end(func() { _ = p.session.Close() })
	return nil
}

// abandon is Close for a command that nobody waits for any more: without the signal, sshd would keep it, and its session, until
// it ends by itself. (sshd passes signals on to the processes of accounts other than root.)
func (p *process) abandon() {
	p.end(func() {
		_ = p.session.Signal(ssh.SIGTERM)
		_ = p.session.Close()
	})
}

// end ends the session unless it has ended. It does not block, which writing to a host that does not read would.
func (p *process) end(do func()) {
	p.closing.Do(func() {
		close(p.closed)
		select {
		case <-p.exited:
		default:
			go do()
		}
		p.release()
	})
}

func (p *process) release() { p.releasing.Do(p.conn.release) }

func (p *process) closedError() error {
	return &Error{Reason: Closed, Address: p.conn.address, Err: ErrSessionClosed}
}

// reap waits for the end of the session, and keeps how it ended.
func (p *process) reap() {
	p.exit, p.err = p.outcome(p.session.Wait())
	close(p.exited)
	p.release()
}

func (p *process) outcome(err error) (int, error) {
	if err == nil {
		return 0, nil
	}
	if exit, ok := errors.AsType[*ssh.ExitError](err); ok {
		return exit.ExitStatus(), nil
	}
	select {
	case <-p.closed:
		return -1, p.closedError()
	default:
	}
	// Either the session ended strangely or the whole connection is gone. The library closes the sessions first, so ask:
	// the caller's next Get must not find a dead connection.
	p.conn.ping()
	if cause := p.conn.failure(); cause != nil {
		return -1, cause
	}
	return -1, classify(p.conn.address, "the command on the host ended without an exit status", err)
}
