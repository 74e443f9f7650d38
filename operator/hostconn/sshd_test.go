// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostconn

import (
	"bufio"
	"bytes"
	"context"
	"crypto/elliptic"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
)

const (
	sshdPath = "/usr/sbin/sshd"
	// sshdPrivsepDir is compiled into Debian's sshd, which does not start without it. systemd makes it elsewhere.
	sshdPrivsepDir = "/run/sshd"
)

// sshd is a real OpenSSH server for the current user.
type sshd struct {
	target   Target
	hostKeys []ssh.Signer
}

// startSSHD starts sshd with host keys of these kinds and more lines for its configuration.
func startSSHD(t *testing.T, hostKeyKinds []keyKind, lines ...string) *sshd {
	t.Helper()
	g := NewWithT(t)
	if _, err := os.Stat(sshdPath); err != nil {
		t.Fatalf("This test needs a real OpenSSH server; install the package openssh-server: %v", err)
	}
	if os.Geteuid() == 0 {
		g.Expect(os.MkdirAll(sshdPrivsepDir, 0o755)).To(Succeed())
	}
	current, err := user.Current()
	g.Expect(err).NotTo(HaveOccurred())
	dir := t.TempDir()
	clientKey := newKey(t, ed25519Key)
	clientSigner, err := ssh.NewSignerFromKey(clientKey)
	g.Expect(err).NotTo(HaveOccurred())
	authorizedKeys := filepath.Join(dir, "authorized_keys")
	g.Expect(os.WriteFile(authorizedKeys, ssh.MarshalAuthorizedKey(clientSigner.PublicKey()), 0o600)).To(Succeed())

	address := freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	g.Expect(err).NotTo(HaveOccurred())
	config := append([]string{
		"ListenAddress 127.0.0.1", "Port " + port, "PidFile none", "UsePAM no", "StrictModes no", "LogLevel ERROR",
		"PermitRootLogin prohibit-password", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
		"AuthorizedKeysFile " + authorizedKeys,
	}, lines...)
	s := &sshd{target: Target{Address: address, User: current.Username, PrivateKey: openSSH(t, clientKey)}}
	for i, kind := range hostKeyKinds {
		key := newKey(t, kind)
		signer, err := ssh.NewSignerFromKey(key)
		g.Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(dir, fmt.Sprintf("host_key_%d", i))
		g.Expect(os.WriteFile(file, openSSH(t, key), 0o600)).To(Succeed())
		config = append(config, "HostKey "+file)
		s.hostKeys = append(s.hostKeys, signer)
	}
	configFile := filepath.Join(dir, "sshd_config")
	g.Expect(os.WriteFile(configFile, []byte(strings.Join(config, "\n")+"\n"), 0o600)).To(Succeed())

	var log bytes.Buffer
	cmd := exec.Command(sshdPath, "-D", "-e", "-f", configFile)
	cmd.Stderr = &log
	g.Expect(cmd.Start()).To(Succeed())
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // It is killed.
	}()
	t.Cleanup(func() {
		// Its sessions end before it does, so that it can collect their processes.
		g.Eventually(func() string {
			children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
			return string(children)
		}, soon).Should(BeEmpty())
		_ = cmd.Process.Kill()
		<-exited
		if t.Failed() {
			t.Logf("sshd wrote:\n%s", log.String())
		}
	})
	g.Eventually(func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}, soon).Should(Succeed())
	return s
}

func freeAddress(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

var allHostKeyKinds = []keyKind{ed25519Key, ecdsaKey(elliptic.P256()), oneRSAKey}

func TestOpenSSHRunsCommands(t *testing.T) {
	s := startSSHD(t, []keyKind{ed25519Key})
	conn, err := newPool(t, Options{}).Get(t.Context(), "ns/host", s.target)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, tt := range []struct {
		name, command, stdin, stdout, stderr string
		exit                                 int
	}{
		{"and returns their outputs", "printf out; printf err >&2", "", "out", "err", 0},
		{"and returns their exit status", "exit 7", "", "", "", 7},
		{"and feeds them", "cat", "word", "word", "", 0},
		{"that do not exist", "caplv-no-such-command 2>/dev/null", "", "", "", 127},
		{"that a signal ends", "kill -KILL $$", "", "", "", 128 + 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			result, err := conn.Exec(t.Context(), tt.command, strings.NewReader(tt.stdin))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(result.Stdout)).To(Equal(tt.stdout))
			g.Expect(string(result.Stderr)).To(Equal(tt.stderr))
			g.Expect(result.ExitCode).To(Equal(tt.exit))
		})
	}
}

// sshd passes signals on for accounts other than root only, so this is about the end of the session alone.
func TestOpenSSHEndsTheSessionOfACommandWhoseContextHasEnded(t *testing.T) {
	g := NewWithT(t)
	s := startSSHD(t, []keyKind{ed25519Key})
	conn, err := newPool(t, Options{}).Get(t.Context(), "ns/host", s.target)
	g.Expect(err).NotTo(HaveOccurred())
	pidFile := filepath.Join(t.TempDir(), "pid")
	input, _ := io.Pipe() // Which never ends by itself.
	defer func() { _ = input.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	failure := make(chan error, 1)
	go func() {
		// The file appears with its content, or not at all.
		_, err := conn.Exec(ctx, fmt.Sprintf("echo $$ >'%s.new' && mv '%[1]s.new' '%[1]s' && exec cat", pidFile), input)
		failure <- err
	}()
	g.Eventually(func() error { _, err := os.Stat(pidFile); return err }, soon).Should(Succeed())
	pid, err := os.ReadFile(pidFile)
	g.Expect(err).NotTo(HaveOccurred())
	process := "/proc/" + strings.TrimSpace(string(pid))
	g.Expect(process).To(BeADirectory())

	cancel()
	g.Eventually(failure, soon).Should(Receive(MatchError(context.Canceled)))
	g.Eventually(process, soon).ShouldNot(BeADirectory())
}

func TestOpenSSHWithMaxSessions10ServesThirtyCommandsAtOnce(t *testing.T) {
	g := NewWithT(t)
	s := startSSHD(t, []keyKind{ed25519Key}, "MaxSessions 10")
	for _, ours := range []int{6, 20} { // 20 is more than sshd allows: it refuses some, which are repeated.
		conn, err := newPool(t, Options{MaxSessions: ours, sessionRetry: time.Minute}).Get(t.Context(), "ns/host", s.target)
		g.Expect(err).NotTo(HaveOccurred())
		var running sync.WaitGroup
		outputs := make(chan string, 30)
		for i := range 30 {
			running.Go(func() {
				result, err := conn.Exec(t.Context(), fmt.Sprintf("echo %d", i), nil)
				if err != nil {
					outputs <- err.Error()
					return
				}
				outputs <- string(result.Stdout)
			})
		}
		running.Wait()
		seen := map[string]bool{}
		for range 30 {
			seen[<-outputs] = true
		}
		for i := range 30 {
			g.Expect(seen).To(HaveKey(fmt.Sprintf("%d\n", i)))
		}
	}
}

func TestOpenSSHBeyondMaxStartupsIsDialedAgain(t *testing.T) {
	g := NewWithT(t)
	s := startSSHD(t, []keyKind{ed25519Key}, "MaxStartups 1")
	// A client that says nothing takes the only place. It has it once sshd greets instead of complaining.
	var silent net.Conn
	g.Eventually(func(g Gomega) {
		conn, err := net.Dial("tcp", s.target.Address)
		g.Expect(err).NotTo(HaveOccurred())
		greeting, _ := bufio.NewReader(conn).ReadString('\n')
		if !strings.HasPrefix(greeting, "SSH-") {
			_ = conn.Close()
		}
		g.Expect(greeting).To(HavePrefix("SSH-"))
		silent = conn
	}, soon).Should(Succeed())
	defer func() { _ = silent.Close() }()
	signer, err := parseKey(s.target.PrivateKey)
	g.Expect(err).NotTo(HaveOccurred())
	_, _, err = dialOnce(t.Context(), s.target, signer, hostKeyAlgorithms)
	g.Expect(err).To(MatchError(errBrokenOff))
	g.Expect(ReasonOf(err)).To(Equal(Unreachable))

	// sshd notices the end of the client some time after Get has begun.
	g.Expect(silent.Close()).To(Succeed())
	_, err = newPool(t, Options{}).Get(t.Context(), "ns/host", s.target)
	g.Expect(err).NotTo(HaveOccurred())
}

func TestOpenSSHShowsItsOtherHostKeys(t *testing.T) {
	s := startSSHD(t, allHostKeyKinds)
	for i, name := range []string{"ed25519", "ecdsa", "rsa"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			target := s.target
			target.HostKeyFingerprint = fingerprintOf(s.hostKeys[i])
			conn, err := newPool(t, Options{}).Get(t.Context(), "ns/host", target)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(conn.HostKeyFingerprint()).To(Equal(target.HostKeyFingerprint))
		})
	}
}

func TestOpenSSHWithoutThePinnedHostKeyIsRefused(t *testing.T) {
	g := NewWithT(t)
	s := startSSHD(t, allHostKeyKinds)
	s.target.HostKeyFingerprint = fingerprintOf(newSigner(t, ed25519Key))
	_, err := newPool(t, Options{}).Get(t.Context(), "ns/host", s.target)
	g.Expect(ReasonOf(err)).To(Equal(HostKeyMismatch))
	g.Expect(err).To(MatchError(ContainSubstring("expected " + s.target.HostKeyFingerprint)))
	for _, key := range s.hostKeys {
		g.Expect(err).To(MatchError(ContainSubstring(fingerprintOf(key))))
	}
}

func TestOpenSSHAcceptsEachKindOfPrivateKey(t *testing.T) {
	for name, kind := range map[string]keyKind{
		"ed25519": ed25519Key, "ecdsa": ecdsaKey(elliptic.P256()), "rsa": oneRSAKey,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			key := newKey(t, kind)
			signer, err := ssh.NewSignerFromKey(key)
			g.Expect(err).NotTo(HaveOccurred())
			authorizedKeys := filepath.Join(t.TempDir(), "authorized_keys")
			g.Expect(os.WriteFile(authorizedKeys, ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o600)).To(Succeed())
			s := startSSHD(t, []keyKind{ed25519Key}, "Match all", "AuthorizedKeysFile "+authorizedKeys)
			s.target.PrivateKey = openSSH(t, key)
			_, err = newPool(t, Options{}).Get(t.Context(), "ns/host", s.target)
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

func TestOpenSSHRefuses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		user  string
	}{
		{"a key that is not authorized", nil, ""},
		{"it with a disconnect where MaxAuthTries is 1", []string{"MaxAuthTries 1"}, ""},
		{"a user that does not exist", nil, "caplv-no-such-user"},
		{"all public keys", []string{"PubkeyAuthentication no", "PasswordAuthentication yes"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			s := startSSHD(t, []keyKind{ed25519Key}, tt.lines...)
			s.target.PrivateKey = openSSH(t, newKey(t, ed25519Key)) // Which is not authorized.
			if tt.user != "" {
				s.target.User = tt.user
			}
			_, err := newPool(t, Options{}).Get(t.Context(), "ns/host", s.target)
			g.Expect(ReasonOf(err)).To(Equal(Unauthorized))
		})
	}
}
