// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"encoding/pem"
	"errors"
	"fmt"

	"golang.org/x/crypto/ssh"
)

// pkcs8Encrypted is the PEM type of an encrypted PKCS #8 key (RFC 7468, section 11), which x/crypto/ssh does not know.
const pkcs8Encrypted = "ENCRYPTED PRIVATE KEY"

// parseKey reads a private key. The error says what is wrong without showing any of it.
func parseKey(key []byte) (ssh.Signer, error) {
	signer, err := ssh.ParsePrivateKey(key)
	if err == nil {
		return withModernAlgorithms(signer)
	}
	block, _ := pem.Decode(key)
	var passphraseMissing *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &passphraseMissing), block != nil && block.Type == pkcs8Encrypted:
		return nil, invalidKey("the private key is encrypted; store an unencrypted key (ssh-keygen -p removes the passphrase)")
	case block != nil:
		// The parser's own words may quote the key.
		return nil, invalidKey("the private key is damaged or of an unsupported type; use an unencrypted ed25519, ECDSA or RSA key")
	}
	return nil, invalidKey("this is not a private key; it must be an unencrypted ed25519, ECDSA or RSA key in OpenSSH or PEM format")
}

// withModernAlgorithms refuses types that are not supported and keeps an RSA key from signing with SHA-1.
func withModernAlgorithms(signer ssh.Signer) (ssh.Signer, error) {
	switch keyType := signer.PublicKey().Type(); keyType {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521:
		return signer, nil
	case ssh.KeyAlgoRSA:
		algorithmSigner, ok := signer.(ssh.AlgorithmSigner)
		if !ok {
			return nil, invalidKey("the RSA key cannot sign with SHA-2")
		}
		return ssh.NewSignerWithAlgorithms(algorithmSigner, []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256})
	default:
		return nil, invalidKey(fmt.Sprintf("private keys of type %s are not supported; use ed25519, ECDSA or RSA", keyType))
	}
}

func invalidKey(message string) error {
	return &Error{Reason: InvalidKey, Err: errors.New(message)}
}
