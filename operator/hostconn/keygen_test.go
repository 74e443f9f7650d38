// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
)

// keyKind makes a private key.
type keyKind func() (crypto.PrivateKey, error)

// RSA keys take long to make, and the tests do not need different ones.
var oneRSAKey = sync.OnceValues(func() (crypto.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

func ed25519Key() (crypto.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return key, err
}

func ecdsaKey(curve elliptic.Curve) keyKind {
	return func() (crypto.PrivateKey, error) { return ecdsa.GenerateKey(curve, rand.Reader) }
}

func newKey(t *testing.T, kind keyKind) crypto.PrivateKey {
	t.Helper()
	key, err := kind()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return key
}

func newSigner(t *testing.T, kind keyKind) ssh.Signer {
	t.Helper()
	signer, err := ssh.NewSignerFromKey(newKey(t, kind))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return signer
}

func fingerprintOf(signer ssh.Signer) string { return ssh.FingerprintSHA256(signer.PublicKey()) }

// openSSH is the format that ssh-keygen writes.
func openSSH(t *testing.T, key crypto.PrivateKey) []byte {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(key, "")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(block)
}

func openSSHEncrypted(t *testing.T, key crypto.PrivateKey) []byte {
	t.Helper()
	block, err := ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte("open sesame"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(block)
}

func pkcs8(t *testing.T, key crypto.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func pkcs1(t *testing.T, key crypto.PrivateKey) []byte {
	t.Helper()
	rsaKey, ok := key.(*rsa.PrivateKey)
	NewWithT(t).Expect(ok).To(BeTrue())
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)})
}

func sec1(t *testing.T, key crypto.PrivateKey) []byte {
	t.Helper()
	g := NewWithT(t)
	ecKey, ok := key.(*ecdsa.PrivateKey)
	g.Expect(ok).To(BeTrue())
	der, err := x509.MarshalECPrivateKey(ecKey)
	g.Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}
