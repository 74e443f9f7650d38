// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// keepaliveRequest is the global request that OpenSSH itself uses: any answer, also a refusal, proves that the peer lives.
const keepaliveRequest = "keepalive@openssh.com"

// Conn is one SSH connection to a host. Its methods may be called concurrently. Once its transport has died, all of
// them return the cause.
type Conn struct {
	key, address, fingerprint string

	client  *ssh.Client
	options Options
	slots   chan struct{} // Holds an element for each session in use.
	done    chan struct{} // Closed when cause is set.

	mu       sync.Mutex
	cause    *Error // Why the connection is gone; nil while it stands.
	active   int    // Sessions in use.
	lastUsed time.Time
}

func newConn(key, address, fingerprint string, client *ssh.Client, options Options) *Conn {
	c := &Conn{
		key: key, address: address, fingerprint: fingerprint, client: client, options: options,
		slots: make(chan struct{}, options.MaxSessions), done: make(chan struct{}), lastUsed: time.Now(),
	}
	go func() { c.breakOff(client.Wait()) }()
	go c.watch()
	return c
}

// HostKeyFingerprint is the fingerprint (SHA256:…) of the key that the host proved to have.
func (c *Conn) HostKeyFingerprint() string { return c.fingerprint }

// close closes the connection for a cause, which everything that runs over it returns. The first cause counts.
func (c *Conn) close(cause *Error) {
	c.mu.Lock()
	first := c.cause == nil
	if first {
		c.cause = cause
		close(c.done)
	}
	c.mu.Unlock()
	if first {
		_ = c.client.Close()
	}
}

// closeBecause closes the connection for a cause that lies on this side.
func (c *Conn) closeBecause(err error) {
	c.close(&Error{Reason: Closed, Address: c.address, Err: err})
}

// breakOff closes a connection whose transport has failed.
func (c *Conn) breakOff(err error) {
	if err == nil {
		err = errors.New("closed by the host")
	}
	c.close(classify(c.address, "the SSH connection broke", err))
}

// failure returns why the connection is gone, and nil while it stands.
func (c *Conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		return nil
	}
	return c.cause
}

// touch says that the connection stands, and keeps it from being closed as idle before its caller has used it.
func (c *Conn) touch() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastUsed = time.Now()
	return c.cause == nil
}

// watch sends keepalives, and closes the connection when nothing has used it for a while.
func (c *Conn) watch() {
	keepalive := time.NewTicker(c.options.KeepaliveInterval)
	defer keepalive.Stop()
	idle := time.NewTimer(c.options.IdleTimeout)
	defer idle.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-keepalive.C:
			c.ping()
		case <-idle.C:
			idle.Reset(c.closeIfIdle())
		}
	}
}

// closeIfIdle closes the connection if it is due, and returns when to look again.
func (c *Conn) closeIfIdle() time.Duration {
	c.mu.Lock()
	left := c.options.IdleTimeout
	if c.active == 0 {
		left -= time.Since(c.lastUsed)
	}
	if left > 0 || c.cause != nil {
		c.mu.Unlock()
		return max(left, time.Millisecond)
	}
	// Decided under the lock: nobody can start a session in between.
	c.cause = &Error{Reason: Closed, Address: c.address, Err: ErrIdle}
	close(c.done)
	c.mu.Unlock()
	_ = c.client.Close()
	return c.options.IdleTimeout
}

// ping asks the host for a sign of life, and closes the connection if there is none.
func (c *Conn) ping() {
	answered := make(chan error, 1)
	go func() {
		_, _, err := c.client.SendRequest(keepaliveRequest, true, nil)
		answered <- err
	}()
	timer := time.NewTimer(c.options.KeepaliveTimeout)
	defer timer.Stop()
	select {
	case err := <-answered:
		if err != nil {
			c.breakOff(err)
		}
	case <-c.done:
	case <-timer.C:
		c.close(&Error{Reason: Timeout, Address: c.address, Err: fmt.Errorf(
			"the SSH connection was closed because the host did not answer a keepalive within %s", c.options.KeepaliveTimeout)})
	}
}

// acquire takes a slot for a session, for which it waits.
func (c *Conn) acquire(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
	case <-c.done:
		return c.failure()
	case <-ctx.Done():
		return classify(c.address, fmt.Sprintf("waiting for one of %d SSH sessions", c.options.MaxSessions), ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		<-c.slots
		return c.cause
	}
	c.active++
	return nil
}

// release gives back what acquire took.
func (c *Conn) release() {
	c.mu.Lock()
	c.active--
	c.lastUsed = time.Now()
	c.mu.Unlock()
	<-c.slots
}
