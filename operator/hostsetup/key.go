// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostsetup

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

// KeyPair is an SSH key that was made.
type KeyPair struct {
	// Private is in OpenSSH's format, without passphrase.
	Private []byte
	// Public is as in a .pub file, with a line break at its end.
	Public []byte
}

// NewKeyPair makes an ed25519 key.
func NewKeyPair(comment string) (KeyPair, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return KeyPair{}, err
	}
	block, err := ssh.MarshalPrivateKey(private, comment)
	if err != nil {
		return KeyPair{}, err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return KeyPair{}, err
	}
	line := append(bytes.TrimSpace(ssh.MarshalAuthorizedKey(key)), []byte(" "+comment+"\n")...)
	return KeyPair{Private: pem.EncodeToMemory(block), Public: line}, nil
}

// PublicHalf is the public half of a private key, as "TYPE BASE64". The error shows nothing of the key.
func PublicHalf(private []byte) (string, error) {
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil {
		if _, encrypted := errors.AsType[*ssh.PassphraseMissingError](err); encrypted {
			return "", errors.New("the private key is encrypted; store an unencrypted key (ssh-keygen -p removes the passphrase)")
		}
		return "", errors.New("it is not an unencrypted ed25519, ECDSA or RSA key in OpenSSH or PEM format")
	}
	return string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(signer.PublicKey()))), nil
}

// CheckPublicKey says what is wrong with a public key that is to read TYPE BASE64 [COMMENT].
func CheckPublicKey(text string) error {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("the key has a line break or another control character; write it on one line")
	}
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	switch {
	case err != nil:
		return errors.New("this is not a public key; copy the line of a .pub file")
	case len(options) > 0:
		return errors.New("the key has options; leave them out, and use authorizedFrom for where it may be used from")
	case len(bytes.TrimSpace(rest)) > 0:
		return errors.New("there is more than one key; write each as an entry of its own")
	case !strings.HasPrefix(text, key.Type()+" "):
		return fmt.Errorf("the key does not begin with its type, %s", key.Type())
	}
	return nil
}

// AuthorizedKeys are the public keys that may log in: that of the operator, and others. A key that is there twice is named once.
func AuthorizedKeys(operator string, others []string) []string {
	var keys []string
	seen := map[string]bool{}
	for _, key := range append([]string{operator}, others...) {
		fields := strings.Fields(key)
		if len(fields) < 2 || seen[fields[1]] {
			continue
		}
		seen[fields[1]] = true
		keys = append(keys, strings.TrimSpace(key))
	}
	return keys
}
