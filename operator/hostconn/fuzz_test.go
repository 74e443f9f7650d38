// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"context"
	"encoding/pem"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"
)

// fuzzTime bounds one connection of a fuzz target. A server that keeps silent would take all of it.
const fuzzTime = 2 * time.Second

// FuzzParseKey reads whatever a Secret could hold. The error of what is no key repeats nothing of it.
func FuzzParseKey(f *testing.F) {
	key := anyKey(f)
	f.Add(key)
	f.Add(key[:len(key)/2])
	f.Add([]byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nc2VjcmV0c2VjcmV0\n-----END ENCRYPTED PRIVATE KEY-----\n"))
	f.Add([]byte("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n"))
	f.Add([]byte("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEVzZWNyZXQ= somebody"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, key []byte) {
		signer, err := parseKey(key)
		if err == nil {
			if signer == nil || signer.PublicKey() == nil {
				t.Fatal("a key was accepted that cannot sign")
			}
			return
		}
		if ReasonOf(err) != InvalidKey {
			t.Fatalf("%v has the reason %q", err, ReasonOf(err))
		}
		text := err.Error()
		if strings.ContainsAny(text, "\n\r") || !utf8.ValidString(text) {
			t.Fatalf("%q does not fit into a condition", text)
		}
		for word := range strings.FieldsSeq(string(key)) {
			if len(word) >= 16 && strings.Contains(text, word) {
				t.Fatalf("%q repeats %q of the key", text, word)
			}
		}
	})
}

// anyKey is a new private key, as ssh-keygen writes it.
func anyKey(f *testing.F) []byte {
	f.Helper()
	key, err := ed25519Key()
	if err != nil {
		f.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		f.Fatal(err)
	}
	return pem.EncodeToMemory(block)
}

// FuzzHandshake connects to a server that says anything and closes. The dial ends with a reason, in a text that fits into a
// condition, and nobody has been given the key.
func FuzzHandshake(f *testing.F) {
	f.Add([]byte("SSH-2.0-OpenSSH_9.2p1\r\n"))
	f.Add([]byte("Exceeded MaxStartups\r\n"))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Add([]byte("SSH-1.99-x\n\x00\x00\x00\x0c\x0a\x14"))
	f.Add([]byte("SSH-2.0-x\r\n\x00\x00\x00\x0c\x0a\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("SSH-2.0-x\r\n\xff\xff\xff\xff\x00"))
	f.Add([]byte{})
	signer, err := parseKey(anyKey(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, says []byte) {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write(says)
			_ = conn.Close()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), fuzzTime)
		defer cancel()
		client, _, err := dialOnce(ctx, Target{Address: listener.Addr().String(), User: "caplv"}, signer, hostKeyAlgorithms)
		if err == nil {
			_ = client.Close()
			t.Fatalf("%q passed for an SSH server", says)
		}
		if reason := ReasonOf(err); reason != Unreachable {
			t.Errorf("%v has the reason %q", err, reason)
		}
		if text := err.Error(); strings.ContainsAny(text, "\n\r") || !utf8.ValidString(text) || len(text) > 1024 {
			t.Errorf("%q does not fit into a condition", text)
		}
	})
}
