// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"errors"
	"net"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
)

// targetOf returns a target with a key that the server accepts.
func targetOf(t *testing.T, s *server) Target {
	t.Helper()
	return Target{Address: s.address(), User: "caplv", PrivateKey: openSSH(t, newKey(t, ed25519Key))}
}

// newPool returns a Pool that the test closes. Its deadlines are far off unless the test is about them.
func newPool(t *testing.T, options Options) *Pool {
	t.Helper()
	for _, d := range []*time.Duration{&options.DialTimeout, &options.KeepaliveInterval, &options.KeepaliveTimeout, &options.IdleTimeout} {
		if *d == 0 {
			*d = time.Hour
		}
	}
	p := NewPool(options)
	t.Cleanup(func() { NewWithT(t).Expect(p.Close()).To(Succeed()) })
	return p
}

func TestGetAcceptsEachKindOfPrivateKey(t *testing.T) {
	for _, tt := range usableKeys {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			key := newKey(t, tt.kind)
			signer, err := ssh.NewSignerFromKey(key)
			g.Expect(err).NotTo(HaveOccurred())
			s := newServer(t, &serverOptions{publicKey: func(_ ssh.ConnMetadata, offered ssh.PublicKey) (*ssh.Permissions, error) {
				if !bytes.Equal(offered.Marshal(), signer.PublicKey().Marshal()) {
					return nil, errors.New("another key")
				}
				return nil, nil
			}})
			target := targetOf(t, s)
			target.PrivateKey = tt.encode(t, key)
			_, err = newPool(t, Options{}).Get(t.Context(), "ns/host", target)
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

func TestGetWithAnUnusableKeyDoesNotConnect(t *testing.T) {
	g := NewWithT(t)
	s := newServer(t, &serverOptions{})
	target := targetOf(t, s)
	target.PrivateKey = openSSHEncrypted(t, newKey(t, ed25519Key))
	_, err := newPool(t, Options{}).Get(t.Context(), "ns/host", target)
	g.Expect(ReasonOf(err)).To(Equal(InvalidKey))
	g.Expect(s.accepted.Load()).To(BeZero())
}

func TestGetVerifiesTheHostKey(t *testing.T) {
	keys := map[string]ssh.Signer{
		"ed25519": newSigner(t, ed25519Key), "rsa": newSigner(t, oneRSAKey),
		"p256": newSigner(t, ecdsaKey(elliptic.P256())), "p384": newSigner(t, ecdsaKey(elliptic.P384())),
		"stranger": newSigner(t, ed25519Key),
	}
	for _, tt := range []struct {
		name       string
		has        []string // The keys of the host.
		pinned     string   // Which of the keys is pinned, or "".
		connects   string   // With which of the keys it connects, or "".
		handshakes int
	}{
		{"without a pin, the first key is accepted and reported", []string{"ed25519", "rsa"}, "", "ed25519", 1},
		{"an ed25519 key", []string{"ed25519"}, "ed25519", "ed25519", 1},
		{"an ECDSA key", []string{"p384"}, "p384", "p384", 1},
		{"an RSA key", []string{"rsa"}, "rsa", "rsa", 1},
		{"the pinned key is found behind one of another kind", []string{"ed25519", "rsa"}, "rsa", "rsa", 2},
		{"the pinned key is found behind two of other kinds", []string{"ed25519", "p256", "rsa"}, "rsa", "rsa", 3},
		{"the pinned key is found behind one on another curve", []string{"p256", "p384"}, "p384", "p384", 2},
		{"another key is refused", []string{"ed25519"}, "stranger", "", 2},
		{"other keys of all kinds are refused", []string{"ed25519", "p256", "p384", "rsa"}, "stranger", "", 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			options := &serverOptions{}
			for _, name := range tt.has {
				options.hostKeys = append(options.hostKeys, keys[name])
			}
			s := newServer(t, options)
			target := targetOf(t, s)
			if tt.pinned != "" {
				target.HostKeyFingerprint = fingerprintOf(keys[tt.pinned])
			}
			conn, err := newPool(t, Options{}).Get(t.Context(), "ns/host", target)
			g.Expect(s.accepted.Load()).To(BeNumerically("<=", tt.handshakes))
			if tt.connects != "" {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(conn.HostKeyFingerprint()).To(Equal(fingerprintOf(keys[tt.connects])))
				return
			}
			g.Expect(ReasonOf(err)).To(Equal(HostKeyMismatch))
			g.Expect(err).To(MatchError(And(ContainSubstring("expected "+target.HostKeyFingerprint), ContainSubstring("ssh-keygen"))))
			for _, name := range tt.has {
				g.Expect(err).To(MatchError(ContainSubstring(fingerprintOf(keys[name]))))
			}
		})
	}
}

func TestHostKeyVerifierInsistsOnTheFirstKeyForAConnection(t *testing.T) {
	g := NewWithT(t)
	v := &hostKeyVerifier{}
	first, second := newSigner(t, ed25519Key), newSigner(t, ed25519Key)
	g.Expect(v.verify("", nil, first.PublicKey())).To(Succeed())
	g.Expect(v.verify("", nil, first.PublicKey())).To(Succeed())
	g.Expect(v.verify("", nil, second.PublicKey())).NotTo(Succeed(), "when session keys are renewed")
}

func TestGetIsUnauthorizedWhen(t *testing.T) {
	refuse := func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, errors.New("no") }
	pinned := newSigner(t, oneRSAKey)
	for _, tt := range []struct {
		name, says string
		options    *serverOptions
		pinned     string
	}{
		{"the host refuses the key", "authorized_keys", &serverOptions{publicKey: refuse}, ""},
		{"the host disconnects after the first refusal", "authorized_keys", &serverOptions{publicKey: refuse, maxAuthTries: 1}, ""},
		{"the host accepts passwords only", "only password", &serverOptions{passwordOnly: true}, ""},
		{"the host wants another key as well", "asks for more (password)", &serverOptions{
			publicKey: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
				return nil, &ssh.PartialSuccessError{Next: ssh.ServerAuthCallbacks{
					PasswordCallback: func(ssh.ConnMetadata, []byte) (*ssh.Permissions, error) { return nil, errors.New("no") },
				}}
			},
		}, ""},
		{"the key is refused behind the second host key", "authorized_keys", &serverOptions{
			publicKey: refuse, hostKeys: []ssh.Signer{newSigner(t, ed25519Key), pinned},
		}, fingerprintOf(pinned)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			s := newServer(t, tt.options)
			target := targetOf(t, s)
			target.HostKeyFingerprint = tt.pinned
			_, err := newPool(t, Options{}).Get(t.Context(), "ns/host", target)
			g.Expect(ReasonOf(err)).To(Equal(Unauthorized))
			g.Expect(err).To(MatchError(And(ContainSubstring(tt.says), ContainSubstring(`"caplv"`))))
		})
	}
}

func TestGetRepeatsHandshakesThatTheHostBreaksOff(t *testing.T) {
	dropInAuth := &serverOptions{}
	dropInAuth.dropInAuth.Store(2)
	for _, tt := range []struct {
		name    string
		options *serverOptions
	}{
		{"before the handshake, beyond MaxStartups", &serverOptions{drop: 2}},
		{"during authentication", dropInAuth},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			s := newServer(t, tt.options)
			_, err := newPool(t, Options{}).Get(t.Context(), "ns/host", targetOf(t, s))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.accepted.Load()).To(BeEquivalentTo(3))
		})
	}
}

func TestGetIsUnreachableWhen(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(closed.Close()).To(Succeed())
	dropping := newServer(t, &serverOptions{drop: 1000})
	for _, tt := range []struct{ name, address, says string }{
		{"nothing listens", closed.Addr().String(), "connecting: connect: connection refused"},
		{"the name does not exist", "host.invalid:22", "host.invalid"},
		{"the address has no port", "127.0.0.1", "missing port"},
		{"the host drops every connection", dropping.address(), "the host closed the connection; is something else"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			target := targetOf(t, dropping)
			target.Address = tt.address
			pool := newPool(t, Options{DialTimeout: time.Minute})
			_, err := pool.Get(t.Context(), "ns/host", target)
			g.Expect(ReasonOf(err)).To(Equal(Unreachable))
			g.Expect(err).To(MatchError(ContainSubstring(tt.says)))
			_, again := pool.Get(t.Context(), "ns/host", target)
			g.Expect(again).To(MatchError(err.Error()), "the same words each time, for a condition")
		})
	}
}

func TestGetTimesOutOnAHostThatStaysSilent(t *testing.T) {
	g := NewWithT(t)
	s := newServer(t, &serverOptions{silent: true})
	_, err := newPool(t, Options{DialTimeout: 50 * time.Millisecond}).Get(t.Context(), "ns/host", targetOf(t, s))
	g.Expect(ReasonOf(err)).To(Equal(Timeout))
	g.Expect(err).To(MatchError(s.address() + ": the SSH handshake: timed out"))
	g.Expect(s.accepted.Load()).To(BeEquivalentTo(1), "silence is not repeated")
}

func TestGetReturnsWhenTheContextEnds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		end    func(context.Context) (context.Context, context.CancelFunc)
		reason Reason
		err    error
	}{
		{"at its deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond)
		}, Timeout, context.DeadlineExceeded},
		{"when it is canceled", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		}, Canceled, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			s := newServer(t, &serverOptions{silent: true})
			ctx, cancel := tt.end(t.Context())
			defer cancel()
			_, err := newPool(t, Options{}).Get(ctx, "ns/host", targetOf(t, s))
			g.Expect(ReasonOf(err)).To(Equal(tt.reason))
			g.Expect(err).To(MatchError(tt.err))
		})
	}
}
