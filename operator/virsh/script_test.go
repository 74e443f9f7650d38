// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

// stubVirsh puts a virsh into a directory for PATH that notes its environment and the directory that it works in, and
// goes on as the real one with the test driver.
func stubVirsh(t *testing.T) (bin, notes string) {
	t.Helper()
	g := NewWithT(t)
	bin, notes = t.TempDir(), filepath.Join(t.TempDir(), "notes")
	stub := "#!/bin/sh\n{ env; echo \"args=$*\"; echo \"dir=$(pwd)\"; stat -c mode=%a .; echo \"pid=$$\"; } >" + notes + ".new && mv " + notes + ".new " + notes +
		"\nexec /usr/bin/virsh -q -c test:///default\n"
	g.Expect(os.WriteFile(filepath.Join(bin, "virsh"), []byte(stub), 0o755)).To(Succeed())
	return bin, notes
}

func read(t *testing.T, notes string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(notes)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	values := map[string]string{}
	for line := range strings.Lines(string(content)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		values[key] = value
	}
	return values
}

func TestTheEnvironmentOfVirsh(t *testing.T) {
	for mode, want := range map[Mode]map[string]string{
		ModeSystem:  {"args": "-q -c qemu:///system", "VIRSH_HISTSIZE": "", "XDG_RUNTIME_DIR": ""},
		ModeSession: {"args": "-q -c qemu:///session", "VIRSH_HISTSIZE": "0", "XDG_RUNTIME_DIR": "/run/user/" + strconv.Itoa(os.Getuid())},
	} {
		t.Run(string(mode), func(t *testing.T) {
			g := NewWithT(t)
			bin, notes := stubVirsh(t)
			l := &local{env: []string{"PATH=" + bin + ":/usr/bin:/bin", "LANG=de_DE.UTF-8", "LANGUAGE=de", "LC_ALL=de_DE.UTF-8", "LIBVIRT_DEBUG=1", "VIRSH_DEBUG=0"}}
			s := New(l.start, mode, Options{})
			_, err := s.Observe(t.Context(), Query{Domain: "test"})
			g.Expect(err).NotTo(HaveOccurred())
			got := read(t, notes)
			g.Expect(got["LC_ALL"]).To(Equal("C"))
			g.Expect(got).NotTo(Or(HaveKey("LIBVIRT_DEBUG"), HaveKey("VIRSH_DEBUG")))
			g.Expect(got["mode"]).To(Equal("700"))
			for key, value := range want {
				g.Expect(got[key]).To(Equal(value), key)
			}
			g.Expect(s.Close()).To(Succeed())
			g.Eventually(func() string { return got["dir"] }, "5s").ShouldNot(BeADirectory())
		})
	}
}

func TestTheAccountsReadlineIsNotUsed(t *testing.T) {
	g := NewWithT(t)
	home := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(home, ".inputrc"), []byte("set editing-mode vi\n\"t\": \"x\"\n\"list\": \"quit\\n\"\n"), 0o600)).To(Succeed())
	l := &local{env: []string{"PATH=/usr/bin:/bin", "HOME=" + home, "TERM=xterm-256color"}}
	s := New(l.start, ModeSystem, Options{URI: "test:///default"})
	t.Cleanup(func() { _ = s.Close() })
	obs, err := s.Observe(t.Context(), Query{Domain: "test"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(obs.Domain).NotTo(BeNil())
}

func TestNothingIsLeftBehind(t *testing.T) {
	for name, end := range map[string]func(g Gomega, p *process, virsh int){
		"when the input ends":  func(g Gomega, p *process, _ int) { g.Expect(p.remote.Stdin().Close()).To(Succeed()) },
		"when virsh is killed": func(g Gomega, _ *process, virsh int) { g.Expect(syscall.Kill(virsh, syscall.SIGKILL)).To(Succeed()) },
		"when the script is terminated": func(g Gomega, p *process, _ int) {
			g.Expect(p.remote.(*localProcess).cmd.Process.Signal(syscall.SIGTERM)).To(Succeed()) //nolint:errcheck // newLocal makes no other.
		},
		"when the script is killed": func(g Gomega, p *process, _ int) {
			g.Expect(p.remote.(*localProcess).cmd.Process.Kill()).To(Succeed()) //nolint:errcheck // As above.
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			bin, notes := stubVirsh(t)
			runtime := filepath.Join(t.TempDir(), "a directory; with $blanks")
			g.Expect(os.Mkdir(runtime, 0o700)).To(Succeed())
			l := &local{env: []string{"PATH=" + bin + ":/usr/bin:/bin", "XDG_RUNTIME_DIR=" + runtime}}
			s := New(l.start, ModeSystem, Options{})
			g.Expect(s.DefineDomain(t.Context(), domainXML)).To(Succeed())
			got := read(t, notes)
			g.Expect(filepath.Dir(got["dir"])).To(Equal(runtime))
			file, err := os.Stat(filepath.Join(got["dir"], xmlFile))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(file.Mode().Perm()).To(Equal(os.FileMode(0o600)))
			virsh, err := strconv.Atoi(got["pid"])
			g.Expect(err).NotTo(HaveOccurred())

			end(g, s.process, virsh)
			_, _ = s.process.remote.Wait()
			g.Eventually(func(g Gomega) {
				left, err := os.ReadDir(runtime)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(left).To(BeEmpty())
				g.Expect(syscall.Kill(virsh, 0)).To(MatchError(syscall.ESRCH))
			}, "5s").Should(Succeed())
		})
	}
}
