// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/awx"
	fake "github.com/caplv/caplv/test/awx"
)

// local has hosts that are this machine, without ssh: what matters is AWX.
const local = `
[all]
one.site ansible_connection=local
two.site ansible_connection=local
[all:vars]
ansible_python_interpreter=%s
`

// tiny does what each test needs in a second: it fails, hangs, prints or changes as it is told.
const tiny = `
- name: Tiny
  hosts: all
  gather_facts: false
  tasks:
    - name: It says what it was given
      ansible.builtin.copy:
        content: "{{ say | default('nothing') }}"
        dest: "{{ lookup('env', 'HOME') }}/said.{{ inventory_hostname }}"
        mode: "0600"
    - name: It prints
      ansible.builtin.command: head -c {{ big }} /dev/zero
      when: big is defined
      changed_when: false
    - name: It may fail without harm
      ansible.builtin.fail:
        msg: harmless
      ignore_errors: true
    - name: It takes its time
      ansible.builtin.command: sleep {{ seconds | default(0) }}
      changed_when: false
    - name: It is left out
      ansible.builtin.debug:
        msg: here
      tags: [optional]
    - name: It fails
      ansible.builtin.fail:
        msg: "{{ fail }}"
      when: fail is defined and inventory_hostname == failing | default(inventory_hostname)
`

// start starts an AWX whose onboard_host is the tiny playbook, on the hosts one.site and two.site.
func start(t *testing.T, options ...fake.Option) *fake.Server {
	t.Helper()
	dir := t.TempDir()
	inventory := filepath.Join(dir, "hosts")
	write(t, inventory, fmt.Sprintf(local, python(t)))
	write(t, filepath.Join(dir, "playbooks", "onboard_host.yml"), tiny)
	return fake.Start(t, inventory, "", append([]fake.Option{fake.WithProject(dir)}, options...)...)
}

// python is the interpreter that Ansible itself runs with.
func python(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../../.venv/bin/python3")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// connect returns a backend for a server, with a configuration that is changed.
func connect(t *testing.T, server *fake.Server, change ...func(*awx.Config)) *awx.Backend {
	t.Helper()
	config := awx.Config{URL: server.URL, Token: server.Token, CA: server.CA, PollInterval: 50 * time.Millisecond, Settle: 2 * time.Second, Timeout: 10 * time.Second}
	for _, c := range change {
		c(&config)
	}
	backend, err := awx.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Close)
	return backend
}

const hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"

// request asks for onboard_host on one.site.
func request(key string, change ...func(*ansible.Request)) ansible.Request {
	r := ansible.Request{
		Key: key, Playbook: ansible.OnboardHost, Deadline: time.Minute, Submitted: time.Now(),
		Hosts: []ansible.Host{{Name: "one.site", Address: "127.0.0.1", Port: 22, User: "root", HostKeys: []string{hostKey}}},
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

// with adds a variable to a request.
func with(name string, value any) func(*ansible.Request) {
	return func(r *ansible.Request) {
		if r.Variables == nil {
			r.Variables = map[string]any{}
		}
		r.Variables[name] = value
	}
}

// finished waits for the end of a run.
func finished(t *testing.T, backend *awx.Backend, ref ansible.Ref) ansible.Status {
	t.Helper()
	var status ansible.Status
	NewWithT(t).Eventually(func(g Gomega) {
		var err error
		status, err = backend.Status(t.Context(), ref)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status.Phase.Ended()).To(BeTrue(), "%+v", status)
	}).WithTimeout(90 * time.Second).WithPolling(100 * time.Millisecond).Should(Succeed())
	return status
}

// refusal expects an error with a reason, and returns its text.
func refusal(t *testing.T, err error, reason ansible.Reason) string {
	t.Helper()
	g := NewWithT(t)
	g.Expect(err).To(HaveOccurred())
	var known *ansible.Error
	g.Expect(err).To(BeAssignableToTypeOf(known))
	g.Expect(ansible.ReasonOf(err)).To(Equal(reason), err.Error())
	return err.Error()
}

// launches counts the jobs that were asked for.
func launches(server *fake.Server) int {
	count := 0
	for _, r := range server.Requests() {
		if r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/launch/") {
			count++
		}
	}
	return count
}

// sshd is an SSH server on loopback.
type sshd struct {
	port       int
	hostKey    string
	privateKey string
}

// startSSHD starts a real sshd that the current user may log in to with a key.
func startSSHD(t *testing.T) sshd {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"host", "user"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal(listener.Addr())
	}
	port := address.Port
	_ = listener.Close()
	write(t, filepath.Join(dir, "config"), fmt.Sprintf(`
ListenAddress 127.0.0.1
Port %d
HostKey %[2]s/host
AuthorizedKeysFile %[2]s/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
Subsystem sftp internal-sftp
`, port, dir))
	if os.Getuid() == 0 {
		// Where sshd keeps its unprivileged half.
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", filepath.Join(dir, "config"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	NewWithT(t).Eventually(func() error {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}).WithTimeout(10 * time.Second).Should(Succeed())
	public, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	return sshd{port: port, hostKey: strings.TrimSpace(string(public)), privateKey: filepath.Join(dir, "user")}
}
