// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
)

// server is an SSH server whose misbehaviour can be ordered. Its commands are the cases of do.
type server struct {
	t        *testing.T
	listener net.Listener
	work     sync.WaitGroup

	accepted atomic.Int32 // TCP connections.
	sessions atomic.Int32 // Sessions that are open.
	commands atomic.Int32 // Commands that run.
	stopped  chan struct{}
	signals  chan string // Signals that commands were sent.

	mu    sync.Mutex
	peak  int32 // The most commands that ran at once.
	conns map[net.Conn]struct{}
	thaw  chan struct{} // Not nil while the server reads nothing.
}

type serverOptions struct {
	hostKeys []ssh.Signer
	// publicKey decides about a client; nil takes every key.
	publicKey func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error)
	// passwordOnly offers no public key authentication.
	passwordOnly bool
	// maxAuthTries is how many failures end the connection with a message.
	maxAuthTries int
	// maxSessions is how many sessions a connection may have; 0 is no limit.
	maxSessions int32
	// silent accepts connections and never speaks.
	silent bool
	// drop is how many connections are dropped before the handshake, as sshd does beyond MaxStartups.
	drop int32
	// dropInAuth is how many connections are dropped when the client has shown its key.
	dropInAuth atomic.Int32
	// gate, when not nil, holds handshakes until it is closed.
	gate chan struct{}
}

func newServer(t *testing.T, options *serverOptions) *server {
	t.Helper()
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	if options.hostKeys == nil {
		options.hostKeys = []ssh.Signer{newSigner(t, ed25519Key)}
	}
	s := &server{
		t: t, listener: listener, stopped: make(chan struct{}),
		signals: make(chan string, 16), conns: map[net.Conn]struct{}{},
	}
	s.work.Go(func() { s.accept(options) })
	t.Cleanup(s.stop)
	return s
}

func (s *server) address() string { return s.listener.Addr().String() }

// stop ends everything and waits for it.
func (s *server) stop() {
	s.mu.Lock()
	select {
	case <-s.stopped:
	default:
		close(s.stopped)
	}
	s.mu.Unlock()
	_ = s.listener.Close()
	s.dropAll()
	s.work.Wait()
}

// dropAll closes all TCP connections.
func (s *server) dropAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

// freeze makes the server read nothing more; its connections stay open.
func (s *server) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.thaw = make(chan struct{})
}

// frozenConn is the server's side of a connection that freeze can hold.
type frozenConn struct {
	net.Conn
	server *server
}

func (c frozenConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.server.mu.Lock()
	thaw := c.server.thaw
	c.server.mu.Unlock()
	if thaw != nil {
		<-c.server.stopped
		return 0, net.ErrClosed
	}
	return n, err
}

func (s *server) accept(options *serverOptions) {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[conn] = struct{}{}
		select {
		case <-s.stopped: // After stop has closed the others.
			_ = conn.Close()
		default:
		}
		s.mu.Unlock()
		number := s.accepted.Add(1)
		s.work.Go(func() {
			defer func() {
				_ = conn.Close()
				s.mu.Lock()
				delete(s.conns, conn)
				s.mu.Unlock()
			}()
			switch {
			case number <= options.drop:
			case options.silent:
				<-s.stopped
			default:
				s.serve(conn, options)
			}
		})
	}
}

func (s *server) serve(conn net.Conn, options *serverOptions) {
	if options.gate != nil {
		select {
		case <-options.gate:
		case <-s.stopped:
			return
		}
	}
	config := &ssh.ServerConfig{MaxAuthTries: options.maxAuthTries}
	if options.passwordOnly {
		config.PasswordCallback = func(ssh.ConnMetadata, []byte) (*ssh.Permissions, error) { return nil, errors.New("no") }
	} else {
		config.PublicKeyCallback = func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if options.dropInAuth.Add(-1) >= 0 {
				_ = conn.Close()
				return nil, errors.New("dropped")
			}
			if options.publicKey == nil {
				return nil, nil
			}
			return options.publicKey(meta, key)
		}
	}
	for _, key := range options.hostKeys {
		config.AddHostKey(key)
	}
	c, channels, requests, err := ssh.NewServerConn(frozenConn{conn, s}, config)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	s.work.Go(func() { ssh.DiscardRequests(requests) })
	var open atomic.Int32
	for channel := range channels {
		if n := open.Add(1); options.maxSessions > 0 && n > options.maxSessions {
			open.Add(-1)
			_ = channel.Reject(ssh.ConnectionFailed, "open failed")
			continue
		}
		s.work.Go(func() {
			defer open.Add(-1)
			s.session(conn, channel)
		})
	}
}

func (s *server) session(conn net.Conn, channel ssh.NewChannel) {
	s.sessions.Add(1)
	defer s.sessions.Add(-1)
	c, requests, err := channel.Accept()
	if err != nil {
		return
	}
	ended := make(chan struct{})
	for request := range requests {
		switch request.Type {
		case "exec":
			var payload struct{ Command string }
			_ = ssh.Unmarshal(request.Payload, &payload)
			_ = request.Reply(payload.Command != "refuse", nil)
			s.work.Go(func() {
				defer func() { _ = c.Close() }()
				s.run(conn, c, payload.Command, ended)
			})
		case "signal":
			var payload struct{ Signal string }
			_ = ssh.Unmarshal(request.Payload, &payload)
			s.signals <- payload.Signal
		default:
			if request.WantReply {
				_ = request.Reply(false, nil)
			}
		}
	}
	close(ended)
}

// run runs a command, whose first word is one of the cases of do.
func (s *server) run(conn net.Conn, c ssh.Channel, command string, ended <-chan struct{}) {
	n := s.commands.Add(1)
	s.mu.Lock()
	s.peak = max(s.peak, n)
	s.mu.Unlock()
	exit := s.do(conn, c, command, ended)
	s.commands.Add(-1)
	if exit >= 0 {
		_, _ = c.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(exit)}))
	}
}

// do returns the exit status, and -1 for none.
func (s *server) do(conn net.Conn, c ssh.Channel, command string, ended <-chan struct{}) int {
	kind, rest, _ := strings.Cut(command, " ")
	switch kind {
	case "echo": // On both outputs.
		_, _ = io.WriteString(c, rest)
		_, _ = io.WriteString(c.Stderr(), strings.ToUpper(rest))
	case "cat":
		_, _ = io.Copy(c, c)
	case "exit":
		exit, _ := strconv.Atoi(rest)
		return exit
	case "killed":
		_, _ = c.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Signal string
			Core   bool
			Error  string
			Lang   string
		}{Signal: rest}))
		return -1
	case "hang": // Says that it has started, and then nothing.
		_, _ = io.WriteString(c, "started\n")
		<-ended
		return -1
	case "flood":
		_, _ = io.Copy(c, bytes.NewReader(make([]byte, maxOutput+1)))
	case "vanish": // Ends without an exit status.
		return -1
	case "drop": // Drops the whole connection.
		_ = conn.Close()
		return -1
	}
	return 0
}
