// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet starts SSH servers on loopback ports: hosts for playbooks that change nothing. What Ansible does "on" them happens on this
// machine, as root.
package fleet

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/caplv/caplv/operator/ansible"
)

// privsepDir is compiled into Debian's sshd, which does not start without it. systemd makes it elsewhere.
const privsepDir = "/run/sshd"

// Server is one SSH server.
type Server struct {
	// Host is how it is reached, as root.
	Host ansible.Host

	cmd  *exec.Cmd
	done chan struct{}
	log  bytes.Buffer
}

// Options are what a server differs in.
type Options struct {
	// Name is its name in inventories.
	Name string
	// Namespaced is a shell command that is run before the server, in a mount namespace that both share.
	Namespaced string
	// Config has more lines for sshd_config.
	Config []string
}

// Fleet holds servers whose keys are in one directory.
type Fleet struct {
	dir     string
	mutex   sync.Mutex
	servers []*Server
}

// New returns a Fleet that keeps its files in a directory.
func New(dir string) *Fleet { return &Fleet{dir: dir} }

// Start starts a server.
func (f *Fleet) Start(o Options) (*Server, error) {
	if err := os.MkdirAll(privsepDir, 0o755); err != nil {
		return nil, err
	}
	dir := filepath.Join(f.dir, o.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	client, clientPublic, err := NewKey()
	if err != nil {
		return nil, err
	}
	host, hostPublic, err := NewKey()
	if err != nil {
		return nil, err
	}
	lines := append([]string{
		"ListenAddress 127.0.0.1", "Port " + strconv.Itoa(port), "PidFile none", "UsePAM no", "StrictModes no", "LogLevel ERROR",
		"PermitRootLogin prohibit-password", "PasswordAuthentication no", "KbdInteractiveAuthentication no", "MaxStartups 200",
		// Not what the shell of whoever runs the tests sets up.
		"SetEnv PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=" + dir,
		"AuthorizedKeysFile " + filepath.Join(dir, "authorized_keys"), "HostKey " + filepath.Join(dir, "host_key"),
	}, o.Config...)
	for name, content := range map[string]string{
		"authorized_keys": clientPublic + "\n", "host_key": host, "sshd_config": strings.Join(lines, "\n") + "\n",
	} {
		mode := os.FileMode(0o600)
		if name == "authorized_keys" {
			mode = 0o644
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), mode); err != nil {
			return nil, err
		}
	}
	s := &Server{done: make(chan struct{}), Host: ansible.Host{
		Name: o.Name, Address: "127.0.0.1", Port: port, User: "root", HostKeys: []string{hostPublic}, PrivateKey: client,
	}}
	if err := s.start(filepath.Join(dir, "sshd_config"), o.Namespaced); err != nil {
		return nil, err
	}
	f.mutex.Lock()
	f.servers = append(f.servers, s)
	f.mutex.Unlock()
	err = s.ready()
	return s, err
}

func (s *Server) start(config, namespaced string) error {
	server := []string{"/usr/sbin/sshd", "-D", "-e", "-f", config}
	if namespaced != "" {
		server = append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-ec", namespaced + "\n" + `exec "$@"`, "sh"}, server...)
	}
	s.cmd = exec.Command(server[0], server[1:]...)
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait() // It is killed.
	}()
	return nil
}

func (s *Server) ready() error {
	address := net.JoinHostPort(s.Host.Address, strconv.Itoa(s.Host.Port))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("sshd does not listen on %s: %w\n%s", address, err, s.log.String())
		}
	}
}

// Die kills the server with its sessions and all that runs in them, as if the host lost its power.
func (s *Server) Die() {
	pids := append(descendants(s.cmd.Process.Pid), s.cmd.Process.Pid)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-s.done
}

// Close ends all servers.
func (f *Fleet) Close() {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for _, s := range f.servers {
		s.Die()
	}
	f.servers = nil
}

// descendants returns the children of a process, and theirs.
func descendants(pid int) []int {
	var found []int
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	for field := range strings.FieldsSeq(string(content)) {
		child, err := strconv.Atoi(field)
		if err == nil {
			found = append(append(found, child), descendants(child)...)
		}
	}
	return found
}

// NewKey returns a private key in OpenSSH's format, and its public half as "TYPE BASE64".
func NewKey() (private, public string, err error) {
	publicKey, privateKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", "", err
	}
	block, err := ssh.MarshalPrivateKey(privateKey, "")
	if err != nil {
		return "", "", err
	}
	line, err := ssh.NewPublicKey(publicKey)
	if err != nil {
		return "", "", err
	}
	return string(pem.EncodeToMemory(block)), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(line))), nil
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("%s is no TCP address", listener.Addr())
	}
	return address.Port, nil
}
