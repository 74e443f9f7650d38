// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosthelper

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

const bootPath = "path=/var/lib/caplv/boot"

// newBootSandbox is a sandbox whose /var/lib is empty and root's.
func newBootSandbox(t *testing.T) *sandbox {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this needs root: run it through hack/as-root.sh")
	}
	s := newSandbox(t)
	s.sh("mount -n -t tmpfs -o mode=755 tmpfs /var/lib")
	return s
}

func digest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func bootKeys(path, file, content string) []string {
	return []string{path, "file=" + file, "sha256=" + digest(content)}
}

func stageBoot(path, file, content string) string {
	return request("stage-boot", append(bootKeys(path, file, content), fmt.Sprintf("bytes=%d", len(content)))...) + content
}

func checkBoot(path, file, content string) string {
	return request("check-boot", bootKeys(path, file, content)...)
}

func removeBoot(path, content string) string {
	return request("remove-boot", path, "sha256="+digest(content))
}

// varLib lists what is there.
func (s *sandbox) varLib() string {
	s.t.Helper()
	return s.sh(`find /var/lib -mindepth 1 -printf '%y %m %U %s %P\n' | sed 's/^d \([0-7]* [0-9]*\) [0-9]*/d \1/' | sort`)
}

func TestABootFileIsStagedOnceUnderItsDigestAndRemoved(t *testing.T) {
	g := NewWithT(t)
	s := newBootSandbox(t)
	g.Expect(s.send(checkBoot(bootPath, "vmlinuz", payload))).To(Equal(result{Stdout: "boot=absent\n"}))
	g.Expect(s.send(removeBoot(bootPath, payload))).To(Equal(result{Stdout: "removed=absent\n"}))
	g.Expect(s.varLib()).To(BeEmpty(), "a look makes nothing")

	g.Expect(s.send(stageBoot(bootPath, "vmlinuz", payload))).To(Equal(result{Stdout: "staged=created\n"}))
	want := fmt.Sprintf("d 755 0 caplv\nd 755 0 caplv/boot\nd 755 0 caplv/boot/%[1]s\nf 644 0 %[2]d caplv/boot/%[1]s/vmlinuz\n", digest(payload), len(payload))
	g.Expect(s.varLib()).To(Equal(want))
	g.Expect(s.sh("cat /var/lib/caplv/boot/*/vmlinuz")).To(Equal(payload))
	g.Expect(s.send(checkBoot(bootPath, "vmlinuz", payload))).To(Equal(result{Stdout: "boot=present\n"}))
	g.Expect(s.send(checkBoot(bootPath, "initramfs.img", payload))).To(Equal(result{Stdout: "boot=absent\n"}))

	before := s.sh("stat -c '%i %Y' /var/lib/caplv/boot/*/vmlinuz")
	g.Expect(s.send(stageBoot(bootPath, "vmlinuz", payload))).To(Equal(result{Stdout: "staged=unchanged\n"}))
	g.Expect(s.varLib()).To(Equal(want))
	g.Expect(s.sh("stat -c '%i %Y' /var/lib/caplv/boot/*/vmlinuz")).To(Equal(before), "it was written twice")

	g.Expect(s.send(stageBoot(bootPath, "initramfs.img", "other"))).To(Equal(result{Stdout: "staged=created\n"}))
	g.Expect(s.send(removeBoot(bootPath, payload))).To(Equal(result{Stdout: "removed=yes\n"}))
	g.Expect(s.send(checkBoot(bootPath, "initramfs.img", "other"))).To(Equal(result{Stdout: "boot=present\n"}))
	g.Expect(s.send(removeBoot(bootPath, "other"))).To(Equal(result{Stdout: "removed=yes\n"}))
	g.Expect(s.varLib()).To(BeEmpty(), "something was left")
	g.Expect(s.send(removeBoot(bootPath, "other"))).To(Equal(result{Stdout: "removed=absent\n"}))
}

func TestABootFileThatSomebodyHasChangedIsReplaced(t *testing.T) {
	g := NewWithT(t)
	s := newBootSandbox(t)
	g.Expect(s.send(stageBoot(bootPath, "vmlinuz", payload))).To(HaveField("Exit", 0))
	// As QEMU's account could, to which libvirt gives the file while a machine runs.
	s.sh("echo changed >\"$(ls /var/lib/caplv/boot/*/vmlinuz)\"; chown 64055 /var/lib/caplv/boot/*/vmlinuz")
	g.Expect(s.send(checkBoot(bootPath, "vmlinuz", payload))).To(Equal(result{Stdout: "boot=absent\n"}))
	g.Expect(s.send(stageBoot(bootPath, "vmlinuz", payload))).To(Equal(result{Stdout: "staged=created\n"}))
	g.Expect(s.sh("cat /var/lib/caplv/boot/*/vmlinuz; stat -c '%u %a' /var/lib/caplv/boot/*/vmlinuz")).To(Equal(payload + "0 644\n"))
}

func TestABootFileGoesOnlyWhereRootAllowsIt(t *testing.T) {
	for _, row := range []struct {
		name, path, prepare, code string
	}{
		{"a place that means something to the host", "path=/var/lib/cron.d", "mkdir /var/lib/cron.d", "not-ours"},
		{"a place that does not exist", "path=/var/lib/other/boot", "", "not-ours"},
		{"our own place itself", "path=/var/lib/caplv", "", "not-ours"},
		{"a directory that others can write to", bootPath, "mkdir -p -m 777 /var/lib/caplv/boot", "not-ours"},
		{"a parent that others can write to", bootPath, "mkdir -m 1777 /var/lib/caplv", "not-ours"},
		{"a directory of an account", bootPath, "mkdir -p /var/lib/caplv/boot; chown 54321 /var/lib/caplv", "not-ours"},
		{"a link", bootPath, "mkdir /var/lib/caplv; ln -s /var/lib /var/lib/caplv/boot", "not-ours"},
		{"a link in place of the digest", bootPath, "mkdir -p /var/lib/caplv/boot; ln -s /var/lib /var/lib/caplv/boot/" + digest(payload), "not-ours"},
		{"a link in place of the file", bootPath, "d=/var/lib/caplv/boot/" + digest(payload) + "; mkdir -p $d; ln -s /etc/passwd $d/vmlinuz", "not-ours"},
		{"a consent that is not root's", "path=/var/lib/images", "mkdir /var/lib/images; touch /var/lib/images/.caplv-boot; chown 54321 /var/lib/images/.caplv-boot", "not-ours"},
		{"a consent that is a link", "path=/var/lib/images", "mkdir /var/lib/images; ln -s /etc/passwd /var/lib/images/.caplv-boot", "not-ours"},
		{"a relative path", "path=var/lib/caplv/boot", "", "bad-value"},
		{"a path with ..", "path=/var/lib/caplv/../../etc", "", "bad-value"},
		{"a path with a hidden part", "path=/var/lib/caplv/.x", "", "bad-value"},
		{"a path with a slash at its end", bootPath + "/", "", "bad-value"},
		{"the root", "path=/", "", "bad-value"},
		{"a path with a blank", "path=/var/lib/caplv/a b", "", "bad-request"},
		{"a path that is code", "path=/var/lib/caplv/$(id)", "", "bad-request"},
		{"a path that is too long", "path=/" + strings.Repeat("a", 200), "", "bad-request"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			s := newBootSandbox(t)
			s.sh("umask 022\n" + row.prepare)
			before := s.varLib()
			expectRefusal(g, s.send(stageBoot(row.path, "vmlinuz", payload)), row.code)
			g.Expect(s.varLib()).To(Equal(before))
		})
	}
}

func TestABootFileGoesWhereRootHasConsented(t *testing.T) {
	g := NewWithT(t)
	s := newBootSandbox(t)
	s.sh("mkdir /var/lib/images; touch /var/lib/images/.caplv-boot; chmod 755 /var/lib/images")
	before := s.varLib()
	g.Expect(s.send(stageBoot("path=/var/lib/images", "vmlinuz", payload))).To(Equal(result{Stdout: "staged=created\n"}))
	g.Expect(s.send(removeBoot("path=/var/lib/images", payload))).To(Equal(result{Stdout: "removed=yes\n"}))
	g.Expect(s.varLib()).To(Equal(before))
}

func TestARequestForABootFileThatIsNotWellFormedChangesNothing(t *testing.T) {
	s := newBootSandbox(t)
	keys := bootKeys(bootPath, "vmlinuz", payload)
	for _, row := range []struct {
		name, request, code string
	}{
		{"no file", request("check-boot", keys[0], keys[2]), "bad-value"},
		{"another file", request("check-boot", keys[0], "file=sudoers", keys[2]), "bad-value"},
		{"no digest", request("check-boot", keys[0], keys[1]), "bad-value"},
		{"a digest that is none", request("remove-boot", keys[0], "sha256=.."), "bad-value"},
		{"no path", request("check-boot", keys[1], keys[2]), "bad-value"},
		{"no length", request("stage-boot", keys...), "bad-value"},
		{"length 0", request("stage-boot", append(keys, "bytes=0")...), "bad-value"},
		{"a length beyond the limit", request("stage-boot", append(keys, "bytes=2147483649")...), "bad-value"},
		{"a name", request("stage-boot", append(keys, "name=vm")...), "bad-request"},
		{"a path for another verb", request("remove", keys[0]), "bad-request"},
		{"a name with a slash", request("remove", "name=a/b"), "bad-request"},
		{"too short a file", strings.TrimSuffix(stageBoot(bootPath, "vmlinuz", payload), "end"), "bad-request"},
		{"another file than the digest's", strings.Replace(stageBoot(bootPath, "vmlinuz", payload), "binary", "BINARY", 1), "digest-mismatch"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			expectRefusal(g, s.send(row.request), row.code)
			g.Expect(s.varLib()).To(BeEmpty())
		})
	}
}

func TestRemovingABootFileKeepsWhatIsNotOurs(t *testing.T) {
	g := NewWithT(t)
	s := newBootSandbox(t)
	g.Expect(s.send(stageBoot(bootPath, "vmlinuz", payload))).To(HaveField("Exit", 0))
	s.sh("touch /var/lib/caplv/boot/" + digest(payload) + "/notes")
	expectRefusal(g, s.send(removeBoot(bootPath, payload)), "not-ours")
	g.Expect(s.sh("ls /var/lib/caplv/boot/*")).To(Equal("notes\n"))
}

// TestABootFileThatIsInterruptedIsNeverInItsPlace ends the helper in the middle of an upload, and also has another request try meanwhile.
func TestABootFileThatIsInterruptedIsNeverInItsPlace(t *testing.T) {
	whole := strings.Repeat("the whole kernel ", 60000)
	for _, end := range []struct {
		name   string
		signal os.Signal
		left   bool
	}{
		{"the connection ends", nil, false},
		{"the session is hung up", syscall.SIGHUP, false},
		{"the helper is killed", syscall.SIGKILL, true},
	} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			s := newBootSandbox(t)
			upload := stageBoot(bootPath, "vmlinuz", whole)
			cmd := s.command(s.helper)
			stdin, err := cmd.StdinPipe()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cmd.Start()).To(Succeed())
			_, err = io.WriteString(stdin, upload[:len(upload)/2])
			g.Expect(err).NotTo(HaveOccurred())
			g.Eventually(func() string { return s.sh("find /var/lib -type f -size +0") }, 20*time.Second, 20*time.Millisecond).ShouldNot(BeEmpty())
			g.Expect(s.send(checkBoot(bootPath, "vmlinuz", whole))).To(Equal(result{Stdout: "boot=absent\n"}))
			expectRefusal(g, s.send(upload), "busy")
			expectRefusal(g, s.send(removeBoot(bootPath, whole)), "busy")
			// Another file has its own place.
			g.Expect(s.send(stageBoot(bootPath, "vmlinuz", payload))).To(Equal(result{Stdout: "staged=created\n"}))
			g.Expect(s.send(removeBoot(bootPath, payload))).To(Equal(result{Stdout: "removed=yes\n"}))
			if end.signal != nil {
				g.Expect(cmd.Process.Signal(end.signal)).To(Succeed())
			}
			g.Expect(stdin.Close()).To(Succeed())
			g.Expect(cmd.Wait()).NotTo(Succeed(), "half a file was taken for a whole one")
			if !end.left {
				g.Expect(s.varLib()).To(BeEmpty())
			}
			g.Expect(s.send(checkBoot(bootPath, "vmlinuz", whole))).To(Equal(result{Stdout: "boot=absent\n"}))
			g.Eventually(func() result { return s.send(upload) }, 10*time.Second, 100*time.Millisecond).Should(Equal(result{Stdout: "staged=created\n"}))
			g.Expect(s.send(removeBoot(bootPath, whole))).To(Equal(result{Stdout: "removed=yes\n"}))
			g.Expect(s.varLib()).To(BeEmpty())
		})
	}
}
