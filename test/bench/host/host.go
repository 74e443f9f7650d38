// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package host gives tests and the demo real libvirt hosts on one machine: each has namespaces of its own, a file system of
// its own, systemd, and a real sshd and libvirtd, and is set up by playbooks/onboard_host.yml. The work is done by
// test/bench/host.sh.
package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// DefaultDir is below where benches keep their hosts. It must be on a file system that overlayfs can have its upper
// directory on, which a container's own overlay cannot.
var DefaultDir = defaultDir()

func defaultDir() string {
	if dir := os.Getenv("CAPLV_BENCH_DIR"); dir != "" {
		return dir
	}
	return "/var/tmp/caplv-bench"
}

// Account is the service account on every host that has been onboarded.
const Account = "caplv"

// Bench is a set of hosts that share a network and the key pair of root's clients.
type Bench struct {
	dir, script string
}

// New returns the bench of hosts in dir, which is created when the first host comes up. It needs root.
func New(repository, dir string) (*Bench, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("test hosts need root: namespaces, mounts, daemons")
	}
	return &Bench{dir: dir, script: filepath.Join(repository, "test", "bench", "host.sh")}, nil
}

// run calls host.sh. Its error has what the script said.
func (b *Bench) run(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, b.script, args...)
	cmd.Env = append(os.Environ(), "CAPLV_BENCH_DIR="+b.dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	// What the script started in the background may hold its output open.
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return stdout.String(), fmt.Errorf("host.sh %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// Up brings a host up that is set up in system mode, and waits until it can be used. The first host of its kind takes a few
// minutes, unless Prepare was called.
func (b *Bench) Up(ctx context.Context, name string) (*Host, error) {
	return b.up(ctx, name, "onboarded-system")
}

// UpSession is Up for a host that is set up in session mode.
func (b *Bench) UpSession(ctx context.Context, name string) (*Host, error) {
	return b.up(ctx, name, "onboarded-session")
}

// UpBare brings a host up from an image that test/bench/rootfs.sh builds: debian12 or debian13, which have systemd, sshd and
// nothing of libvirt, or one with the packages of libvirt installed, such as debian12-libvirt. There is no service account.
func (b *Bench) UpBare(ctx context.Context, name, image string) (*Host, error) {
	return b.up(ctx, name, image)
}

func (b *Bench) up(ctx context.Context, name, image string) (*Host, error) {
	if _, err := b.run(ctx, nil, "up", name, "--image", image); err != nil {
		return nil, err
	}
	h := &Host{Name: name, bench: b}
	if err := h.read(); err != nil {
		return nil, err
	}
	var err error
	if h.PrivateKey, err = os.ReadFile(h.file("account_key")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return h, nil
}

// Prepare sets up once what Up's hosts are made of, with playbooks/onboard_host.yml, unless that is cached.
func Prepare(ctx context.Context, repository string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(repository, "test", "bench", "onboarded.sh"), "system")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("setting up what test hosts are made of: %w", err)
	}
	return nil
}

// PrivateKeyFile is the path of the key that every host of the bench accepts for root. It exists once a host has come up.
func (b *Bench) PrivateKeyFile() string { return filepath.Join(b.dir, "id_ed25519") }

// Unreachable is a host that does not exist, for tests of what must not get as far as reaching it.
func (b *Bench) Unreachable(name string) *Host {
	return &Host{Name: name, Address: "192.0.2.1", bench: b}
}

// DownAll takes all hosts down and removes everything of the bench.
func (b *Bench) DownAll(ctx context.Context) error {
	_, err := b.run(ctx, nil, "down-all")
	return err
}

// Host is one host that is up.
type Host struct {
	// Name is the host's name.
	Name string
	// Address is the host's IP address.
	Address string
	// Fingerprint is the fingerprint (SHA256:…) of the host's SSH key.
	Fingerprint string
	// PrivateKey is the key that the service account accepts. A bare host has none.
	PrivateKey []byte

	bench *Bench
}

// read reads what the script has written about the host.
func (h *Host) read() error {
	for file, into := range map[string]*string{"address": &h.Address, "fingerprint": &h.Fingerprint} {
		content, err := os.ReadFile(h.file(file))
		if err != nil {
			return err
		}
		*into = strings.TrimSpace(string(content))
	}
	return nil
}

func (h *Host) file(name string) string { return filepath.Join(h.bench.dir, "hosts", h.Name, name) }

// KnownHosts is the path of a file that has the host's SSH key as ssh wants it.
func (h *Host) KnownHosts() string { return h.file("known_hosts") }

// Gateway is the IP address that this machine has in the host's network.
func (h *Host) Gateway() string { return h.Address[:strings.LastIndex(h.Address, ".")+1] + "1" }

// SSHAddress is HOST:PORT of the host's sshd.
func (h *Host) SSHAddress() string { return h.Address + ":22" }

// URI is what a LibvirtHost says to use the host.
func (h *Host) URI() string { return "qemu+ssh://" + Account + "@" + h.Address + "/system" }

// SessionURI is what a LibvirtHost says to use the host in session mode.
func (h *Host) SessionURI() string { return "qemu+ssh://" + Account + "@" + h.Address + "/session" }

// SessionImages is the directory of the pool "default" of a host that is set up in session mode.
const SessionImages = "/home/" + Account + "/.local/share/libvirt/images"

// AsAccount runs a command as the account, with the environment of its session, and returns its standard output.
func (h *Host) AsAccount(ctx context.Context, command ...string) (string, error) {
	return h.Exec(ctx, append([]string{"setpriv", "--reuid", Account, "--regid", Account, "--init-groups", "--reset-env",
		"sh", "-c", `XDG_RUNTIME_DIR=/run/user/$(id -u) exec "$@"`, "sh"}, command...)...)
}

// Down takes the host down, whatever state it is in.
func (h *Host) Down(ctx context.Context) error { return h.do(ctx, "down") }

// Reboot ends everything on the host, as a loss of power does, and starts it again. Its disk and its address stay.
func (h *Host) Reboot(ctx context.Context) error { return h.do(ctx, "reboot") }

// StopSSH ends the host's sshd and its connections; StartSSH starts it again.
func (h *Host) StopSSH(ctx context.Context) error { return h.do(ctx, "stop-sshd") }

// StartSSH starts sshd.
func (h *Host) StartSSH(ctx context.Context) error { return h.do(ctx, "start-sshd") }

// StopLibvirt ends libvirtd and its sockets; StartLibvirt starts them again. Machines go on running.
func (h *Host) StopLibvirt(ctx context.Context) error { return h.do(ctx, "stop-libvirtd") }

// StartLibvirt starts libvirtd.
func (h *Host) StartLibvirt(ctx context.Context) error { return h.do(ctx, "start-libvirtd") }

// Rekey gives the host another SSH key, as an installation anew does.
func (h *Host) Rekey(ctx context.Context) error {
	if err := h.do(ctx, "rekey"); err != nil {
		return err
	}
	return h.read()
}

// Listing is everything on the host that a machine could leave behind, in a stable order.
func (h *Host) Listing(ctx context.Context) (string, error) {
	return h.bench.run(ctx, nil, "listing", h.Name)
}

// Exec runs a command as root on the host and returns its standard output.
func (h *Host) Exec(ctx context.Context, command ...string) (string, error) {
	return h.bench.run(ctx, nil, append([]string{"exec", h.Name}, command...)...)
}

// Run runs a command as root on the host.
func (h *Host) Run(ctx context.Context, command ...string) error {
	_, err := h.Exec(ctx, command...)
	return err
}

// InNetwork runs a command of this machine in the host's network.
func (h *Host) InNetwork(ctx context.Context, command ...string) error {
	_, err := h.bench.run(ctx, nil, append([]string{"network", h.Name}, command...)...)
	return err
}

// WriteFile writes a file on the host.
func (h *Host) WriteFile(ctx context.Context, path string, content []byte) error {
	_, err := h.bench.run(ctx, bytes.NewReader(content), "exec", h.Name, "tee", path)
	return err
}

// Copy copies a file of the machine to the host.
func (h *Host) Copy(ctx context.Context, from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = h.bench.run(ctx, f, "exec", h.Name, "dd", "of="+to, "bs=1M", "status=none")
	return err
}

func (h *Host) do(ctx context.Context, what string) error {
	_, err := h.bench.run(ctx, nil, what, h.Name)
	return err
}
