// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Listen makes the socket. It belongs to its owner alone; when other accounts are allowed, anybody may connect and the kernel's word on who
// it is decides. A socket that nobody listens on any more is replaced.
func Listen(path string, allowed []uint32) (net.Listener, error) {
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("another ansible-runner listens on %s", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// Nobody connects in between.
	old := syscall.Umask(0o177)
	listener, err := net.Listen("unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, err
	}
	for _, uid := range allowed {
		if uid != 0 && int(uid) != os.Geteuid() {
			if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // See above.
				return nil, errors.Join(err, listener.Close())
			}
			break
		}
	}
	return listener, nil
}

// peerKey is for the uid of whoever is at the other end of a connection.
type peerKey struct{}

// withPeer is http.Server.ConnContext.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return ctx
	}
	_ = raw.Control(func(fd uintptr) {
		if credentials, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			ctx = context.WithValue(ctx, peerKey{}, credentials.Uid)
		}
	})
	return ctx
}
