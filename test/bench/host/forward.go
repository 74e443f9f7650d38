// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Forward listens at an address (HOST:PORT) in the host's network, and joins every connection with one to an address of this
// machine, until what it returns is closed. The host's guests reach it, as far as the host's network lets them.
func (h *Host) Forward(at, to string) (io.Closer, error) {
	var listener net.Listener
	err := h.inNetwork(func() (err error) {
		listener, err = net.Listen("tcp", at)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listening at %s in the network of host %s: %w", at, h.Name, err)
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go join(connection, to)
		}
	}()
	return listener, nil
}

// Dial connects to an address (HOST:PORT) as the host would.
func (h *Host) Dial(ctx context.Context, address string) (net.Conn, error) {
	var connection net.Conn
	err := h.inNetwork(func() (err error) {
		connection, err = (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", address)
		return err
	})
	return connection, err
}

// inNetwork calls a function in the host's network. Sockets stay in the network in which they were made; IP addresses and no names
// should be given, since these are looked up on other threads.
func (h *Host) inNetwork(do func() error) error {
	network, err := os.Open(h.file("network"))
	if err != nil {
		return err
	}
	defer func() { _ = network.Close() }()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering the network of host %s: %w", h.Name, err)
	}
	done := do()
	// The thread must live on: a process that it started before would be killed at its end, which is what controlplane.Process
	// asks the kernel for.
	if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
		panic("leaving the network of host " + h.Name + ": " + err.Error())
	}
	return done
}

// join copies both ways until both have ended.
func join(from net.Conn, to string) {
	defer func() { _ = from.Close() }()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{from, far}, {far, from}} {
		both.Go(func() {
			// How a connection ends is the business of those who talk on it.
			_, _ = io.Copy(way[0], way[1])
			// The other side learns that there is no more to come.
			if half, ok := way[0].(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
}
