// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/domain"
)

// startLibvirtd starts a libvirtd with its QEMU driver in namespaces of its own, with empty directories for settings and
// state, and returns its URI. It meets no other, and everything that it started ends with the test.
func startLibvirtd(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	g.Expect(os.Geteuid()).To(BeZero(), "a libvirtd of its own needs root, for its mount namespace")
	for program, pkg := range map[string]string{
		"libvirtd": "libvirt-daemon", "virsh": "libvirt-clients", "unshare": "util-linux", "qemu-system-x86_64": "qemu-system-x86",
	} {
		_, err := exec.LookPath(program)
		g.Expect(err).NotTo(HaveOccurred(), "this test needs %s: install the Debian package %s", program, pkg)
	}
	// A socket's path may have 107 characters, which t.TempDir can exceed.
	dir, err := os.MkdirTemp("", "caplv-domain") //nolint:usetesting // As said.
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	conf := "unix_sock_dir = \"" + dir + "\"\nauth_unix_rw = \"none\"\nauth_unix_ro = \"none\"\n"
	g.Expect(os.WriteFile(filepath.Join(dir, "conf"), []byte(conf), 0o600)).To(Succeed())
	const script = `for d in /etc/libvirt /run /var/lib/libvirt /var/cache/libvirt /var/log; do mkdir -p $d && mount -t tmpfs none $d || exit 1; done
printf 'security_driver = "none"\ncgroup_controllers = [ ]\n' >/etc/libvirt/qemu.conf
# libvirtd asks QEMU again and again where the device is root's alone.
if [ -c /dev/kvm ]; then mknod -m 666 /run/kvm c 10 232 && mount --bind /run/kvm /dev/kvm; fi
# The first process of the namespace has to reap what QEMU leaves behind when it is asked what it can do.
libvirtd -f "$0/conf" -p "$0/pid" & wait`
	cmd := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private", "sh", "-c", script, dir) //nolint:noctx // Ends below.
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	g.Expect(cmd.Start()).To(Succeed())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	uri := "qemu+unix:///system?socket=" + dir + "/libvirt-sock"
	g.Eventually(func() error {
		select {
		case <-ended:
			StopTrying("libvirtd ended: " + log.String()).Now()
		default:
		}
		return exec.CommandContext(t.Context(), "virsh", "-q", "-c", uri, "list").Run()
	}, time.Minute, 100*time.Millisecond).Should(Succeed(), "libvirtd does not answer")
	return uri
}

func virsh(t *testing.T, uri string, args ...string) (stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "virsh", append([]string{"-q", "-c", uri}, args...)...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	_ = cmd.Run()
	NewWithT(t).Expect(ctx.Err()).NotTo(HaveOccurred(), "virsh %v does not end", args)
	return out.String(), err.String()
}

// TestARealLibvirtDefinesEveryDomain gives every golden file to a libvirtd with its QEMU driver, which has none of the volumes,
// files and networks that are named, and reads back what it made of it. A machine without /dev/kvm has no domain of type kvm:
// there, the type is replaced.
func TestARealLibvirtDefinesEveryDomain(t *testing.T) {
	uri := startLibvirtd(t)
	capabilities, _ := virsh(t, uri, "capabilities")
	kvm := strings.Contains(capabilities, "<domain type='kvm'")
	files, err := filepath.Glob("testdata/*.xml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defined := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		text := string(content)
		if !strings.HasPrefix(text, "<domain type=") || strings.HasPrefix(filepath.Base(file), "dumpxml-") {
			continue
		}
		defined++
		t.Run(filepath.Base(file), func(t *testing.T) {
			g := NewWithT(t)
			if !kvm && strings.HasPrefix(text, `<domain type="kvm">`) {
				t.Log("this machine has no /dev/kvm: the domain is defined with software emulation")
				text = strings.Replace(text, `type="kvm"`, `type="qemu"`, 1)
				text = strings.Replace(text, "host-passthrough", "maximum", 1)
			}
			path := filepath.Join(t.TempDir(), "domain.xml")
			g.Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
			_, complaint := virsh(t, uri, "define", "--validate", path)
			g.Expect(complaint).To(BeEmpty())
			wanted, err := domain.Parse(text)
			g.Expect(err).NotTo(HaveOccurred())
			dump, complaint := virsh(t, uri, "dumpxml", "--inactive", wanted.Name)
			g.Expect(complaint).To(BeEmpty())
			seen, err := domain.Parse(dump)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(seen.Disks).To(ConsistOf(wanted.Disks))
			g.Expect(dump).To(ContainSubstring("<boot order='1'/>"))
			g.Expect(dump).NotTo(ContainSubstring("lsilogic"), "guests have no driver for it")
			g.Expect(dump).NotTo(MatchRegexp(`<(video|graphics|tpm|sound)\b`), "nothing that was not asked for")
			wanted.Disks, seen.Disks, wanted.NVRAMPath, seen.NVRAMPath = nil, nil, "", ""
			g.Expect(seen).To(Equal(wanted))
			_, complaint = virsh(t, uri, "undefine", "--nvram", wanted.Name)
			g.Expect(complaint).To(BeEmpty())
		})
	}
	NewWithT(t).Expect(defined).To(BeNumerically(">", 15))
}
