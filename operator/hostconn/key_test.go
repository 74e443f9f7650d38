// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"crypto"
	"crypto/elliptic"
	"encoding/pem"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
)

// usableKeys are the private keys that a host can be reached with.
var usableKeys = []struct {
	name   string
	kind   keyKind
	encode func(*testing.T, crypto.PrivateKey) []byte
}{
	{"an ed25519 key as ssh-keygen writes it", ed25519Key, openSSH},
	{"an ed25519 key in PKCS 8", ed25519Key, pkcs8},
	{"an ECDSA P-256 key as ssh-keygen writes it", ecdsaKey(elliptic.P256()), openSSH},
	{"an ECDSA P-384 key in SEC 1", ecdsaKey(elliptic.P384()), sec1},
	{"an ECDSA P-521 key in PKCS 8", ecdsaKey(elliptic.P521()), pkcs8},
	{"an RSA key as ssh-keygen writes it", oneRSAKey, openSSH},
	{"an RSA key in PKCS 1", oneRSAKey, pkcs1},
	{"an RSA key in PKCS 8", oneRSAKey, pkcs8},
}

func TestParseKeyReads(t *testing.T) {
	for _, tt := range usableKeys {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			key := newKey(t, tt.kind)
			want, err := ssh.NewSignerFromKey(key)
			g.Expect(err).NotTo(HaveOccurred())
			signer, err := parseKey(tt.encode(t, key))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(signer.PublicKey().Marshal()).To(Equal(want.PublicKey().Marshal()))
		})
	}
}

func TestParseKeyNeverSignsWithSHA1(t *testing.T) {
	g := NewWithT(t)
	signer, err := parseKey(openSSH(t, newKey(t, oneRSAKey)))
	g.Expect(err).NotTo(HaveOccurred())
	algorithms, ok := signer.(ssh.MultiAlgorithmSigner)
	g.Expect(ok).To(BeTrue())
	g.Expect(algorithms.Algorithms()).To(ConsistOf(ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256))
}

func TestParseKeyRefuses(t *testing.T) {
	const secret = "c2VjcmV0IHNlY3JldCBzZWNyZXQ="
	ed25519PEM := openSSH(t, newKey(t, ed25519Key))
	for _, tt := range []struct {
		name, says string
		key        []byte
	}{
		{"an encrypted key as ssh-keygen writes it", "encrypted", openSSHEncrypted(t, newKey(t, ed25519Key))},
		{"an encrypted key in PKCS 8", "encrypted", pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte(secret)})},
		{"an encrypted key in PKCS 1", "encrypted", pem.EncodeToMemory(&pem.Block{
			Type: "RSA PRIVATE KEY", Bytes: []byte(secret),
			Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00112233445566778899AABBCCDDEEFF"},
		})},
		{"no key at all", "not a private key", nil},
		{"garbage", "not a private key", []byte(secret)},
		{"half a key", "not a private key", ed25519PEM[:len(ed25519PEM)/2]},
		{"a public key", "not a private key", ssh.MarshalAuthorizedKey(newSigner(t, ed25519Key).PublicKey())},
		{"a damaged key", "damaged", pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: []byte(secret)})},
		{"a DSA key", "unsupported type", pem.EncodeToMemory(&pem.Block{Type: "DSA PRIVATE KEY", Bytes: []byte(secret)})},
		{"a key on a curve that SSH does not have", "unsupported type", pkcs8(t, newKey(t, ecdsaKey(elliptic.P224())))},
		{"a certificate", "unsupported type", pem.EncodeToMemory(&pem.Block{Type: secret, Bytes: []byte(secret)})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := parseKey(tt.key)
			g.Expect(ReasonOf(err)).To(Equal(InvalidKey))
			g.Expect(err).To(MatchError(And(ContainSubstring(tt.says), ContainSubstring("unencrypted"))))
			g.Expect(err.Error()).NotTo(ContainSubstring("c2VjcmV0"), "no part of the key")
		})
	}
}

func TestTargetIsPrintedWithoutItsKey(t *testing.T) {
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		t.Run(verb, func(t *testing.T) {
			g := NewWithT(t)
			text := fmt.Sprintf(verb, Target{Address: "host:22", User: "caplv", PrivateKey: []byte("secret")})
			g.Expect(text).To(And(ContainSubstring("caplv@host:22"), Not(ContainSubstring("secret"))))
			g.Expect(text).NotTo(ContainSubstring("115 101 99"), "nor its bytes in decimal")
		})
	}
}
