// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostconn keeps one verified, multiplexed SSH connection a host, shared by everything that talks to it.
//
// A connection is made when it is first asked for, kept alive by keepalives, closed when nothing has used it for a while, when its target
// changes, or when it breaks. No call waits longer than its context or the deadlines in Options say.
package hostconn

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"
)

// Target is how a host is reached.
type Target struct {
	// Address is HOST:PORT, with IPv6 addresses in brackets.
	Address string
	// User is the account on the host.
	User string
	// PrivateKey is a private key in PEM. It is never logged.
	PrivateKey []byte
	// HostKeyFingerprint is SHA256: and unpadded base64. Empty accepts whatever key the host shows; see
	// Conn.HostKeyFingerprint.
	HostKeyFingerprint string

	// traffic counts what goes over the connections. Set by the Pool.
	traffic traffic
}

// String leaves the private key out, so that no log and no error can show it by accident.
func (t Target) String() string {
	return fmt.Sprintf("%s@%s (host key %q)", t.User, t.Address, t.HostKeyFingerprint)
}

// GoString does the same for %#v.
func (t Target) GoString() string { return t.String() }

// sameAccount says whether two targets lead to the same account by the same key. The host key is a matter apart.
func (t Target) sameAccount(o Target) bool {
	return t.Address == o.Address && t.User == o.User && bytes.Equal(t.PrivateKey, o.PrivateKey)
}

// Options are limits. The zero value has the defaults in brackets.
type Options struct {
	// DialTimeout bounds TCP connection, handshake and authentication together [15 s].
	DialTimeout time.Duration
	// KeepaliveInterval is how often an open connection is checked [15 s]; KeepaliveTimeout how long the answer may take
	// [10 s] before the connection counts as dead.
	KeepaliveInterval, KeepaliveTimeout time.Duration
	// IdleTimeout is how long a connection without sessions is kept [2 min].
	IdleTimeout time.Duration
	// MaxSessions is how many sessions a connection has at once [6]. OpenSSH's default limit is 10.
	MaxSessions int

	// sessionRetry is how long a server that refuses a session is asked again [5 s].
	sessionRetry time.Duration
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&o.DialTimeout, 15 * time.Second}, {&o.KeepaliveInterval, 15 * time.Second},
		{&o.KeepaliveTimeout, 10 * time.Second}, {&o.IdleTimeout, 2 * time.Minute}, {&o.sessionRetry, 5 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if o.MaxSessions == 0 {
		o.MaxSessions = 6
	}
	return o
}

// Pool holds the connections. Its methods may be called concurrently; a slow host delays nobody but its own callers.
type Pool struct {
	options Options

	mu      sync.Mutex
	closed  bool
	entries map[string]*entry
}

// entry is one host: a connection, or an attempt at one that callers share.
type entry struct {
	target Target
	cancel context.CancelCauseFunc
	done   chan struct{} // Closed when conn or err is set.
	conn   *Conn
	err    error
}

// NewPool returns an empty Pool.
func NewPool(options Options) *Pool {
	return &Pool{options: options.withDefaults(), entries: map[string]*entry{}}
}

// Get returns the connection for key, the namespace/name of a LibvirtHost. It dials if there is none, if the one that
// there is has broken, or if it was made for another target, in which case that one is closed. Concurrent callers share
// one attempt, which goes on when the context of one of them ends. Errors are of type *Error.
func (p *Pool) Get(ctx context.Context, key string, target Target) (*Conn, error) {
	for again := true; ; again = false {
		e, err := p.entryFor(key, target)
		if err != nil {
			return nil, err
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			return nil, classify(target.Address, "waiting for the SSH connection", ctx.Err())
		}
		if e.err != nil {
			return nil, e.err
		}
		if e.conn.touch() {
			return e.conn, nil
		}
		// It was closed since entryFor looked. A host that always does that must not keep the caller here.
		if !again {
			return nil, e.conn.failure()
		}
	}
}

// entryFor returns the entry for key, and replaces it first if it does not serve the target.
func (p *Pool) entryFor(key string, target Target) (*entry, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, &Error{Reason: Closed, Address: target.Address, Err: ErrClosed}
	}
	if old := p.entries[key]; old != nil {
		if old.usableFor(target) {
			return old, nil
		}
		old.close(ErrReplaced)
	}
	// Not the caller's context: others wait for this as well.
	called, cancel := context.WithCancelCause(context.Background())
	ctx, stop := context.WithTimeout(called, p.options.DialTimeout)
	target.PrivateKey = bytes.Clone(target.PrivateKey)
	e := &entry{target: target, done: make(chan struct{}), cancel: cancel}
	p.entries[key] = e
	go func() {
		defer cancel(nil)
		defer stop()
		defer close(e.done)
		e.conn, e.err = p.connect(ctx, key, target)
	}()
	return e, nil
}

func (p *Pool) connect(ctx context.Context, key string, target Target) (*Conn, error) {
	target.traffic = trafficOf(key)
	client, fingerprint, err := dial(ctx, target)
	if err != nil {
		return nil, err
	}
	dials.WithLabelValues(key).Inc()
	return newConn(key, target.Address, fingerprint, client, p.options), nil
}

// usableFor says whether the entry serves this target. What counts for an open connection is the key that the host has
// proved to have: one that was accepted unpinned and is pinned now is the same.
func (e *entry) usableFor(target Target) bool {
	if !e.target.sameAccount(target) {
		return false
	}
	select {
	case <-e.done:
	default:
		return e.target.HostKeyFingerprint == target.HostKeyFingerprint
	}
	if e.err != nil || e.conn.failure() != nil {
		return false
	}
	return target.HostKeyFingerprint == "" || target.HostKeyFingerprint == e.conn.fingerprint
}

// close ends the entry, also while it is still dialing. It does not wait.
func (e *entry) close(cause error) {
	e.cancel(&Error{Reason: Closed, Address: e.target.Address, Err: cause})
	go func() {
		<-e.done
		if e.conn != nil {
			e.conn.closeBecause(cause)
		}
	}()
}

// Forget closes the connection for key, if there is one, and drops the key's metrics.
func (p *Pool) Forget(key string) {
	p.mu.Lock()
	e := p.entries[key]
	delete(p.entries, key)
	p.mu.Unlock()
	if e != nil {
		e.close(ErrReplaced)
	}
	forgetMetrics(key)
}

// Close closes all connections and ends all attempts at one. The Pool cannot be used afterwards. The error is always
// nil.
func (p *Pool) Close() error {
	p.mu.Lock()
	entries := p.entries
	p.entries, p.closed = map[string]*entry{}, true
	p.mu.Unlock()
	for _, e := range entries {
		e.close(ErrClosed)
	}
	for _, e := range entries {
		<-e.done
		if e.conn != nil {
			e.conn.closeBecause(ErrClosed)
		}
	}
	return nil
}
