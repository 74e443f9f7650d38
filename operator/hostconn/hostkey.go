// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

// hostKeyAlgorithms are the signature algorithms that a host may prove its key with, by preference. SHA-1 is not among
// them.
var hostKeyAlgorithms = []string{
	ssh.KeyAlgoED25519,
	ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
	ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
}

// withoutKeyType returns the algorithms that a key of this type cannot use.
func withoutKeyType(algorithms []string, keyType string) []string {
	return slices.DeleteFunc(slices.Clone(algorithms), func(algorithm string) bool {
		if keyType == ssh.KeyAlgoRSA {
			return algorithm == ssh.KeyAlgoRSASHA256 || algorithm == ssh.KeyAlgoRSASHA512
		}
		return algorithm == keyType
	})
}

// hostKeyVerifier verifies the host key of one connection, at its start and whenever the two sides agree on new session
// keys.
type hostKeyVerifier struct {
	mu     sync.Mutex
	pinned string // Empty until a key is accepted, if no key is pinned.
}

func (v *hostKeyVerifier) verify(_ string, _ net.Addr, key ssh.PublicKey) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	fingerprint := ssh.FingerprintSHA256(key)
	if v.pinned == "" {
		v.pinned = fingerprint
	}
	if v.pinned != fingerprint {
		return &unpinnedKeyError{keyType: key.Type(), fingerprint: fingerprint}
	}
	return nil
}

func (v *hostKeyVerifier) fingerprint() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pinned
}

// unpinnedKeyError says that the host showed another key than the pinned one. It may have the pinned one as well.
type unpinnedKeyError struct{ keyType, fingerprint string }

func (e *unpinnedKeyError) Error() string {
	return "host key " + e.fingerprint + " is not the pinned one"
}

// hostKeyMismatch is the error for a host that has shown all its keys.
func hostKeyMismatch(target Target, presented []string) error {
	return &Error{Reason: HostKeyMismatch, Address: target.Address, Err: fmt.Errorf(
		"the host key is not the expected %s: the host presented %s; if the host was reinstalled, compare with "+
			"\"ssh-keygen -lf\" of its key on its console and change the pinned fingerprint, otherwise another machine may be answering in its place",
		target.HostKeyFingerprint, strings.Join(presented, ", "))}
}
