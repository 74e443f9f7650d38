// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	// handshakeRetries is how often a handshake is repeated that the server broke off, as sshd does beyond MaxStartups.
	handshakeRetries = 4
	// handshakeRetryPause is the first pause before that; it doubles each time.
	handshakeRetryPause = 100 * time.Millisecond

	publicKeyMethod = "publickey"
)

// dial connects, verifies the host's key and authenticates; ctx bounds all of it. It returns the connection and the
// fingerprint of the host's key.
func dial(ctx context.Context, target Target) (*ssh.Client, string, error) {
	signer, err := parseKey(target.PrivateKey)
	if err != nil {
		return nil, "", err
	}
	var client *ssh.Client
	var fingerprint string
	err = overKeys(target, func(algorithms []string) error {
		return patiently(ctx, func() error {
			client, fingerprint, err = dialOnce(ctx, target, signer, algorithms)
			return err
		})
	})
	return client, fingerprint, err
}

// overKeys repeats a handshake until the server shows the pinned key, or has shown all that it has.
func overKeys(target Target, handshake func(algorithms []string) error) error {
	var presented []string
	for algorithms := hostKeyAlgorithms; len(algorithms) > 0; {
		err := handshake(algorithms)
		var other *unpinnedKeyError
		var exhausted *ssh.AlgorithmNegotiationError
		switch {
		case errors.As(err, &other):
			// A server shows one key per handshake. The pinned one may be of another kind.
			presented = append(presented, other.fingerprint)
			algorithms = withoutKeyType(algorithms, other.keyType)
		case len(presented) > 0 && errors.As(err, &exhausted):
			return hostKeyMismatch(target, presented)
		default:
			return err
		}
	}
	return hostKeyMismatch(target, presented)
}

// patiently repeats a handshake that the server broke off.
func patiently(ctx context.Context, handshake func() error) error {
	pause := handshakeRetryPause
	for attempt := 0; ; attempt++ {
		err := handshake()
		if attempt == handshakeRetries || !errors.Is(err, errBrokenOff) {
			return err
		}
		// Those that were refused together must not come back together.
		timer := time.NewTimer(pause/2 + rand.N(pause)) //nolint:gosec // Jitter needs no secrecy.
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
		pause *= 2
	}
}

// errBrokenOff marks the errors of handshakes in which the server dropped the connection.
var errBrokenOff = errors.New("broken off by the host")

// attempt is one handshake: what is known of it decides what its failure means.
type attempt struct {
	target  Target
	hostKey hostKeyVerifier
	// refused is what the host said about the last method of authentication that it refused.
	refused atomic.Pointer[ssh.ClientAuthContext]
}

func dialOnce(ctx context.Context, target Target, signer ssh.Signer, algorithms []string) (*ssh.Client, string, error) {
	conn, stop, err := openTCP(ctx, target)
	if err != nil {
		return nil, "", err
	}
	defer stop()

	a := &attempt{target: target, hostKey: hostKeyVerifier{pinned: target.HostKeyFingerprint}}
	c, channels, requests, err := ssh.NewClientConn(conn, target.Address, &ssh.ClientConfig{
		User:              target.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signer)},
		AuthCallback:      a.observe,
		HostKeyAlgorithms: algorithms,
		HostKeyCallback:   a.hostKey.verify,
		ClientVersion:     "SSH-2.0-caplv",
	})
	if err != nil {
		_ = conn.Close()
		return nil, "", a.explain(ctx, err)
	}
	if !stop() {
		_ = c.Close()
		return nil, "", dialError(ctx, target, "the SSH handshake", ctx.Err())
	}
	_ = conn.SetDeadline(time.Time{})
	return ssh.NewClient(c, channels, requests), a.hostKey.fingerprint(), nil
}

// openTCP opens the TCP connection of a handshake that ctx bounds until stop is called. A server that accepts and then says nothing must not hold
// the caller.
func openTCP(ctx context.Context, target Target) (conn net.Conn, stop func() bool, err error) {
	conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", target.Address)
	if err != nil {
		return nil, nil, dialError(ctx, target, "connecting", err)
	}
	conn = target.traffic.on(conn)
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	return conn, context.AfterFunc(ctx, func() { _ = conn.Close() }), nil
}

// observe is told after each refused method of authentication. It leaves the choice of the next one to the library.
func (a *attempt) observe(auth *ssh.ClientAuthContext) (ssh.AuthMethod, error) {
	a.refused.Store(auth)
	return nil, nil
}

// explain gives the error of a handshake its reason.
func (a *attempt) explain(ctx context.Context, err error) error {
	if other, ok := errors.AsType[*unpinnedKeyError](err); ok {
		return other
	}
	if ctx.Err() != nil || ofTransport(err) {
		return dialError(ctx, a.target, "the SSH handshake", err)
	}
	// The connection stood, and the host had refused something: what failed is authentication. The library has no type
	// for that, and a host that ends it with a disconnect message has other words for it.
	if auth := a.refused.Load(); auth != nil {
		return unauthorized(a.target, auth)
	}
	return classify(a.target.Address, "the SSH handshake", err)
}

// ofTransport says whether an error comes from the TCP connection.
func ofTransport(err error) bool {
	var op *net.OpError
	return droppedByPeer(err) || errors.As(err, &op)
}

func unauthorized(target Target, auth *ssh.ClientAuthContext) error {
	message := fmt.Sprintf("the host does not accept the SSH key for user %q; add its public half to the authorized_keys file of that account", target.User)
	switch {
	case slices.Contains(auth.PartialSuccessMethods, publicKeyMethod):
		message = fmt.Sprintf("the host accepts the SSH key for user %q but asks for more (%s); let it accept the key alone",
			target.User, strings.Join(auth.AllowedMethods, ", "))
	case len(auth.AllowedMethods) > 0 && !slices.Contains(auth.AllowedMethods, publicKeyMethod):
		message = fmt.Sprintf("the host accepts no SSH keys for user %q (only %s); allow publickey authentication for that account",
			target.User, strings.Join(auth.AllowedMethods, ", "))
	}
	return &Error{Reason: Unauthorized, Address: target.Address, Err: errors.New(message)}
}

// dialError gives the error of a connection that was being made its reason. Where the dial was called off, it is the
// reason for that.
func dialError(ctx context.Context, target Target, doing string, err error) error {
	if cause, ok := errors.AsType[*Error](context.Cause(ctx)); ok {
		return cause
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	e := classify(target.Address, doing, err)
	if droppedByPeer(err) {
		e.Err = &brokenOffError{e.Err}
	}
	return e
}

// brokenOffError says in words for users that the server dropped the connection.
type brokenOffError struct{ err error }

func (e *brokenOffError) Error() string {
	return e.err.Error() + "; is something else listening there, or is MaxStartups of its sshd reached?"
}

func (e *brokenOffError) Unwrap() []error { return []error{errBrokenOff, e.err} }
