// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"context"
	"crypto/elliptic"
	"net"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
)

func TestIdentifyTellsTheKeyOfAHostWithoutLoggingIn(t *testing.T) {
	ed, ecdsa := newSigner(t, ed25519Key), newSigner(t, ecdsaKey(elliptic.P256()))
	offered := make(chan struct{}, 1)
	s := newServer(t, &serverOptions{hostKeys: []ssh.Signer{ed, ecdsa}, drop: 1, publicKey: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
		offered <- struct{}{}
		return nil, nil
	}})
	for _, row := range []struct {
		name, pinned string
		want         ssh.PublicKey
	}{
		{"the first key that it shows, where none is pinned", "", ed.PublicKey()},
		{"the pinned key", ssh.FingerprintSHA256(ed.PublicKey()), ed.PublicKey()},
		{"the pinned key, where it is not the first one", ssh.FingerprintSHA256(ecdsa.PublicKey()), ecdsa.PublicKey()},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			key, err := Identify(t.Context(), s.address(), row.pinned)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(key.Fingerprint).To(Equal(ssh.FingerprintSHA256(row.want)))
			g.Expect(strings.Fields(key.Line)).To(HaveLen(2))
			parsed, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key.Line))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(parsed.Marshal()).To(Equal(row.want.Marshal()))
		})
	}
	NewWithT(t).Expect(offered).NotTo(Receive(), "no key is offered")
}

func TestIdentifySaysWhyThereIsNoKey(t *testing.T) {
	g := NewWithT(t)
	s := newServer(t, &serverOptions{})
	_, err := Identify(t.Context(), s.address(), "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	g.Expect(ReasonOf(err)).To(Equal(HostKeyMismatch))
	g.Expect(err).To(MatchError(ContainSubstring("if the host was reinstalled")))

	silent := newServer(t, &serverOptions{silent: true})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = Identify(ctx, silent.address(), "")
	g.Expect(ReasonOf(err)).To(Equal(Timeout))

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(closed.Close()).To(Succeed())
	_, err = Identify(t.Context(), closed.Addr().String(), "")
	g.Expect(ReasonOf(err)).To(Equal(Unreachable))
}
