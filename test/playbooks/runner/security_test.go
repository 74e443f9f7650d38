// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/test/playbooks/fleet"
)

// evil are texts that are code to somebody: each would leave the file behind.
func evil(file string) []string {
	command := "touch " + file
	return []string{
		"{{ lookup('pipe','" + command + "') }}", "{% set x = lookup('pipe','" + command + "') %}{{ x }}", "; " + command, "$(" + command + ")",
		"`" + command + "`", "a\n" + command + "\n", "-oProxyCommand=" + command, "' ; " + command + " ; '", "!unsafe {{ lookup('pipe','" + command + "') }}",
	}
}

func TestTextsOfARequestAreData(t *testing.T) {
	g := NewWithT(t)
	s := start(t)
	host := server(t, fleet.Options{Name: "one.ns"}).Host
	file := filepath.Join(s.dir, "code-was-run")

	t.Run("or are refused, by the name of their field", func(t *testing.T) {
		g := NewWithT(t)
		fields := map[string]func(*ansible.Request, string){
			"key":                  func(r *ansible.Request, text string) { r.Key = text },
			"playbook":             func(r *ansible.Request, text string) { r.Playbook = ansible.Playbook(text) },
			"skipTags[0]":          func(r *ansible.Request, text string) { r.SkipTags = []string{text} },
			"hosts[0].name":        func(r *ansible.Request, text string) { r.Hosts[0].Name = text },
			"hosts[0].address":     func(r *ansible.Request, text string) { r.Hosts[0].Address = text },
			"hosts[0].user":        func(r *ansible.Request, text string) { r.Hosts[0].User = text },
			"hosts[0].hostKeys[0]": func(r *ansible.Request, text string) { r.Hosts[0].HostKeys = []string{text} },
			"hosts[0].privateKey":  func(r *ansible.Request, text string) { r.Hosts[0].PrivateKey = text },
			"variables":            func(r *ansible.Request, text string) { r.Variables = map[string]any{text: 1} },
			"variables.caplv_texts": func(r *ansible.Request, text string) {
				r.Variables = map[string]any{"caplv_texts": map[string]any{text: 1}}
			},
		}
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			for _, text := range evil(file) {
				asked := request("evil", ansible.OnboardHost, nil, host)
				fields[field](&asked, text)
				_, err := s.Submit(t.Context(), asked)
				g.Expect(ansible.ReasonOf(err)).To(Equal(ansible.Rejected), "%s = %q", field, text)
				g.Expect(err.Error()).To(HavePrefix(field+" "), "%q", text)
				g.Expect(err.Error()).NotTo(ContainSubstring("\n"))
			}
		}
	})

	texts := []any{}
	for _, text := range evil(file) {
		texts = append(texts, text, map[string]any{"nested": []any{text}})
	}
	variables := map[string]any{"caplv_texts": texts, "caplv_reason": evil(file)[0]}
	s.submit(request("data", ansible.OnboardHost, variables, host))
	status, _ := s.ended("data")
	g.Expect(status.Phase).To(Equal(ansible.Failed), "%+v", status)
	g.Expect(status.Hosts["one.ns"].Message).To(Equal("It failed as it was told to: " + evil(file)[0]))
	printed, err := os.ReadFile(s.artifact("data", "output.log"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, text := range []string{evil(file)[0], evil(file)[1], evil(file)[3], evil(file)[6]} {
		// YAML doubles quotes, and breaks long lines where a space is.
		want := strings.Join(strings.Fields(strings.ReplaceAll(text, `'`, `''`)), " ")
		g.Expect(strings.Join(strings.Fields(string(printed)), " ")).To(ContainSubstring(want))
	}

	// The same for one host, whose variables win, and in what sudo is told.
	one := host
	one.Variables = map[string]any{"caplv_reason": evil(file)[1], "caplv_texts": texts}
	one.BecomePassword = evil(file)[0]
	s.submit(request("own", ansible.OnboardHost, variables, one))
	status, _ = s.ended("own")
	g.Expect(status.Hosts["one.ns"].Message).To(Equal("It failed as it was told to: " + evil(file)[1]))
	s.submit(request("become", ansible.OffboardHost, nil, one))
	status, _ = s.ended("become")
	g.Expect(status.Phase).To(Equal(ansible.Succeeded), "%+v", status)
	g.Expect(file).NotTo(BeAnExistingFile())
}

// sudoer is an account of a host that may become root, when it knows its password.
const (
	sudoer         = "caplvtest"
	sudoerPassword = `pa'ss "w{{ord}}\$`
)

// withSudoer makes the account in the server's own view of /etc.
func withSudoer(t *testing.T) *fleet.Server {
	t.Helper()
	dir := t.TempDir()
	NewWithT(t).Expect(os.WriteFile(dir+"/password", []byte(sudoerPassword), 0o600)).To(Succeed())
	script := fmt.Sprintf(`
		cd %[1]s
		cp -p /etc/passwd /etc/shadow .
		echo '%[2]s:x:64999:64999::/:/bin/sh' >>passwd
		echo "%[2]s:$(openssl passwd -6 -stdin <password):19000:0:99999:7:::" >>shadow
		printf 'root ALL=(ALL:ALL) ALL\n%[2]s ALL=(ALL:ALL) ALL\n' >sudoers
		chmod 0440 sudoers
		for file in passwd shadow sudoers; do mount --bind $file /etc/$file; done
		cd /`, dir, sudoer)
	s := server(t, fleet.Options{Name: "sudo.ns", Namespaced: script})
	s.Host.User, s.Host.BecomePassword = sudoer, sudoerPassword
	return s
}

func TestBecomingRoot(t *testing.T) {
	s := start(t)
	host := withSudoer(t).Host
	for _, tt := range []struct {
		name, password string
		phase          ansible.Phase
		message        string
	}{
		{"works with the password", sudoerPassword, ansible.Succeeded, ""},
		{"fails without it", "", ansible.Failed, "Missing sudo password"},
		{"fails with another", "guessed", ansible.Failed, "Incorrect sudo password"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			host.BecomePassword = tt.password
			key := strings.ReplaceAll(tt.name, " ", "-")
			s.submit(request(key, ansible.OffboardHost, nil, host))
			status, _ := s.ended(key)
			g.Expect(status.Phase).To(Equal(tt.phase), "%+v", status)
			g.Expect(status.Hosts["sudo.ns"].Message).To(ContainSubstring(tt.message))
		})
	}
}

func TestSecretsAreNowhere(t *testing.T) {
	g := NewWithT(t)
	s := start(t)
	host := withSudoer(t).Host
	const token, nested = "t0ken-of-a-mirror-8721", `w1th "quotes" & <signs>`
	variables := map[string]any{
		"caplv_mirror_token": token, "caplv_images": []any{map[string]any{"name": "a", "password": nested}}, "caplv_sleep": 5,
		// A role that shows what it should not: nothing of it may be left.
		"caplv_texts": []any{"token " + token, "password " + nested, host.PrivateKey, sudoerPassword}, "caplv_reason": "refused " + token + " and " + nested,
	}
	secrets := []string{token, nested, sudoerPassword}
	for line := range strings.Lines(host.PrivateKey) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "-----") {
			secrets = append(secrets, line)
		}
	}
	s.submit(request("secrets", ansible.OnboardHost, variables, host))
	s.until("secrets", sleeping)
	g.Expect(secretsInProcesses(secrets)).To(BeEmpty())
	for path, mode := range files(t, s.workDir()) {
		g.Expect(mode.Perm()&0o077).To(BeZero(), "%s has mode %s", path, mode)
	}
	status, events := s.ended("secrets")
	g.Expect(status.Phase).To(Equal(ansible.Failed))
	g.Expect(status.Hosts["sudo.ns"].Message).To(Equal("It failed as it was told to: refused ******** and ********"))
	g.Expect(os.ReadDir(s.workDir())).To(BeEmpty())

	said := []string{s.log.String(), fmt.Sprintf("%+v %+v", status, events)}
	for path := range files(t, filepath.Join(s.dir, "a")) {
		content, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		said = append(said, string(content))
	}
	g.Expect(said).To(HaveLen(5), "log, answers, status, events and output")
	for _, text := range said {
		for _, secret := range secrets {
			g.Expect(text).NotTo(ContainSubstring(secret))
			g.Expect(text).NotTo(ContainSubstring(strings.ReplaceAll(secret, `"`, `\"`)))
		}
	}
}

// secretsInProcesses returns the processes of the machine that have a secret in their command line or environment.
func secretsInProcesses(secrets []string) []string {
	var found []string
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	paths := slices.Concat(commands, environments)
	for _, path := range paths {
		content, _ := os.ReadFile(path)
		for _, secret := range secrets {
			if bytes.Contains(content, []byte(secret)) {
				found = append(found, path)
			}
		}
	}
	return found
}

// files returns all files below a directory, with their modes.
func files(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	found := map[string]fs.FileMode{}
	NewWithT(t).Expect(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			found[path] = info.Mode()
		}
		return err
	})).To(Succeed())
	return found
}
