// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"bytes"
	"context"
	"net"

	"golang.org/x/crypto/ssh"
)

// HostKey is a public key that a host has proved to have.
type HostKey struct {
	// Line is "TYPE BASE64", as in known_hosts after the name.
	Line string
	// Fingerprint is SHA256:…, as in LibvirtHost.
	Fingerprint string
}

// identifyUser is whom the handshake names. Nothing is ever offered that would let him in.
const identifyUser = "caplv-identify"

// Identify returns the key of the SSH server at address (HOST:PORT), without logging in: the pinned one, if a fingerprint is given, and otherwise the
// first that the server shows. ctx bounds it. Errors are of type *Error, with reason HostKeyMismatch for a server without the pinned key.
func Identify(ctx context.Context, address, pinned string) (HostKey, error) {
	target := Target{Address: address, User: identifyUser, HostKeyFingerprint: pinned}
	var key HostKey
	err := overKeys(target, func(algorithms []string) error {
		return patiently(ctx, func() error {
			var err error
			key, err = identifyOnce(ctx, target, algorithms)
			return err
		})
	})
	return key, err
}

func identifyOnce(ctx context.Context, target Target, algorithms []string) (HostKey, error) {
	conn, stop, err := openTCP(ctx, target)
	if err != nil {
		return HostKey{}, err
	}
	defer stop()
	defer func() { _ = conn.Close() }()
	a := &attempt{target: target, hostKey: hostKeyVerifier{pinned: target.HostKeyFingerprint}}
	var shown ssh.PublicKey
	client, _, _, err := ssh.NewClientConn(conn, target.Address, &ssh.ClientConfig{
		User: target.User, HostKeyAlgorithms: algorithms, ClientVersion: "SSH-2.0-caplv",
		HostKeyCallback: func(hostname string, remote net.Addr, key ssh.PublicKey) error {
			err := a.hostKey.verify(hostname, remote, key)
			if err == nil {
				// The server has signed with it by now.
				shown = key
			}
			return err
		},
	})
	if err == nil {
		// A server that lets everybody in has shown its key as well.
		_ = client.Close()
	}
	if shown == nil {
		return HostKey{}, a.explain(ctx, err)
	}
	return HostKey{Line: string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(shown))), Fingerprint: ssh.FingerprintSHA256(shown)}, nil
}
