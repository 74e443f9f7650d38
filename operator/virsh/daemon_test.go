// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// daemon is a libvirtd of the test's own, with libvirt's test driver and its storage driver in it. It lives in a mount namespace with empty
// directories for settings and state: it meets no other, starts no domain of the machine, and leaves nothing on it.
type daemon struct{ dir string }

// startDaemon starts a daemon that answers before it returns, and is killed when the test ends.
func startDaemon(t *testing.T) *daemon {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("a libvirtd of its own needs root, for its mount namespace")
	}
	for program, pkg := range map[string]string{"libvirtd": "libvirt-daemon", "virsh": "libvirt-clients", "unshare": "util-linux"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is missing; install the package %s", program, pkg)
		}
	}
	// A socket's path may have 107 characters, which t.TempDir can exceed.
	dir, err := os.MkdirTemp("", "caplv-virsh") //nolint:usetesting // As said.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &daemon{dir: dir}
	d.run(t)
	return d
}

func (d *daemon) run(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	conf := "unix_sock_dir = \"" + d.dir + "\"\nauth_unix_rw = \"none\"\nauth_unix_ro = \"none\"\n"
	g.Expect(os.WriteFile(filepath.Join(d.dir, "conf"), []byte(conf), 0o600)).To(Succeed())
	const script = `for d in /etc/libvirt /run /var/lib/libvirt /var/cache/libvirt /var/log; do mkdir -p $d && mount -t tmpfs none $d || exit 1; done
exec libvirtd -f "$0/conf" -p "$0/pid"`
	cmd := exec.Command("unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", script, d.dir) //nolint:noctx // Ends below.
	log, err := os.Create(filepath.Join(d.dir, "log"))
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	g.Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	g.Eventually(func() error {
		return exec.CommandContext(t.Context(), "virsh", "-q", "-c", d.uri(), "list").Run()
	}, 20*time.Second, 100*time.Millisecond).Should(Succeed(), func() string {
		said, _ := os.ReadFile(log.Name())
		return string(said)
	})
}

func (d *daemon) uri() string { return "test+unix:///default?socket=" + d.dir + "/libvirt-sock" }

func (d *daemon) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(d.dir, "pid"))
	g.Expect(err).NotTo(HaveOccurred())
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(syscall.Kill(pid, s)).To(Succeed())
}

// storageURI leads to the same daemon with its QEMU and storage drivers; the latter works on files.
func (d *daemon) storageURI() string { return "qemu+unix:///system?socket=" + d.dir + "/libvirt-sock" }

func (d *daemon) client(t *testing.T) *Shell {
	t.Helper()
	return d.clientOf(t, d.uri())
}

func (d *daemon) clientOf(t *testing.T, uri string) *Shell {
	t.Helper()
	l := &local{env: []string{"PATH=/usr/sbin:/usr/bin:/bin", "HOME=/nonexistent"}}
	s := New(l.start, ModeSystem, Options{URI: uri})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestADaemonThatDiesIsUnavailableAndNothingIsTakenForGone(t *testing.T) {
	for name, operation := range map[string]func(*Shell) error{
		"while a domain is observed":    func(s *Shell) error { _, err := s.Observe(t.Context(), Query{Domain: "test"}); return err },
		"while a domain is undefined":   func(s *Shell) error { return s.UndefineDomain(t.Context(), "test") },
		"while a domain is destroyed":   func(s *Shell) error { return s.DestroyDomain(t.Context(), "test") },
		"while a pool is undefined":     func(s *Shell) error { return s.UndefinePool(t.Context(), "default-pool") },
		"while a volume is deleted":     func(s *Shell) error { return s.DeleteVolume(t.Context(), "default-pool", "none") },
		"while a definition is written": func(s *Shell) error { return s.DefineDomain(t.Context(), domainXML) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			d := startDaemon(t)
			s := d.client(t)
			obs, err := s.Observe(t.Context(), Query{Domain: "test"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(obs.Domain).NotTo(BeNil())

			d.signal(t, syscall.SIGSTOP)
			ended := make(chan error, 1)
			go func() { ended <- operation(s) }()
			g.Consistently(ended, 200*time.Millisecond).ShouldNot(Receive(), "a daemon that stands still answers nothing")
			d.signal(t, syscall.SIGKILL)
			err = <-ended
			g.Expect(ReasonOf(err)).To(Equal(LibvirtUnavailable), "%v", err)
			_, err = s.Observe(t.Context(), Query{Domain: "test"})
			g.Expect(ReasonOf(err)).To(Equal(LibvirtUnavailable), "%v", err)

			d.run(t)
			obs, err = s.Observe(t.Context(), Query{Domain: "test"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(obs.Domain).NotTo(BeNil())
		})
	}
}

func TestADaemonThatWasRestartedBetweenOperationsIsObservedAnew(t *testing.T) {
	g := NewWithT(t)
	d := startDaemon(t)
	s := d.client(t)
	_, err := s.Observe(t.Context(), Query{Domain: "test"})
	g.Expect(err).NotTo(HaveOccurred())
	d.signal(t, syscall.SIGKILL)
	d.run(t)
	obs, err := s.Observe(t.Context(), Query{Domain: "test"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(obs.Domain).NotTo(BeNil())
}
