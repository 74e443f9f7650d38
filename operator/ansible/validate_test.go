// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"crypto/ed25519"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
)

const hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"

func privateKey(t testing.TB, passphrase string) string {
	t.Helper()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	block, err := ssh.MarshalPrivateKey(key, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(pem.EncodeToMemory(block))
}

func valid(t testing.TB) Request {
	return Request{Key: "host-a.ns-1", Playbook: OnboardHost, Deadline: time.Hour, Hosts: []Host{{
		Name: "kvm-1.default", Address: "kvm-1.example.com", Port: 22, User: "root", HostKeys: []string{hostKey}, PrivateKey: privateKey(t, ""),
	}}}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Request)
		err    string
	}{
		{"a usual request", func(*Request) {}, ""},
		{"IPv6", func(r *Request) { r.Hosts[0].Address = "2001:db8::1" }, ""},
		{"all kinds of values", func(r *Request) {
			r.Variables = map[string]any{"caplv_a": []any{1.5, true, nil, "{{ x }}", map[string]any{"b": int64(1)}}, "caplv_b": []string{"x"}, "caplv_c": struct{ D int }{1}}
		}, ""},
		{"no private key", func(r *Request) { r.Hosts[0].PrivateKey = "" }, ""},

		{"no key", func(r *Request) { r.Key = "" }, `key is ""`},
		{"a key that is a path", func(r *Request) { r.Key = "../x" }, `key is "../x"`},
		{"a long key", func(r *Request) { r.Key = strings.Repeat("a", 129) }, "key is "},
		{"another playbook", func(r *Request) { r.Playbook = "../evil" }, "playbook is"},
		{"no hosts", func(r *Request) { r.Hosts = nil }, "hosts is empty"},
		{"no deadline", func(r *Request) { r.Deadline = 0 }, "deadline is 0s"},
		{"a tag that is an option", func(r *Request) { r.SkipTags = []string{"--check"} }, "skipTags[0]"},
		{"two tags in one", func(r *Request) { r.SkipTags = []string{"a,b"} }, "skipTags[0]"},
		{"a host that is a pattern", func(r *Request) { r.Hosts[0].Name = "a[1:9]" }, "hosts[0].name"},
		{"this machine", func(r *Request) { r.Hosts[0].Name = "localhost" }, "hosts[0].name"},
		{"a group's name", func(r *Request) { r.Hosts[0].Name = "all" }, "hosts[0].name"},
		{"an address that is an option", func(r *Request) { r.Hosts[0].Address = "-oProxyCommand=x" }, "hosts[0].address"},
		{"an address with a zone", func(r *Request) { r.Hosts[0].Address = "fe80::1%h" }, "hosts[0].address"},
		{"an address with a port", func(r *Request) { r.Hosts[0].Address = "a:22" }, "hosts[0].address"},
		{"no port", func(r *Request) { r.Hosts[0].Port = 0 }, "hosts[0].port is 0"},
		{"a user that is an option", func(r *Request) { r.Hosts[0].User = "-lroot" }, "hosts[0].user"},
		{"a user on two lines", func(r *Request) { r.Hosts[0].User = "root\n" }, "hosts[0].user"},
		{"no host key", func(r *Request) { r.Hosts[0].HostKeys = nil }, "hosts[0].hostKeys has 0"},
		{"a host key with a name", func(r *Request) { r.Hosts[0].HostKeys = []string{"* " + hostKey} }, "hosts[0].hostKeys[0]"},
		{"a host key with a comment", func(r *Request) { r.Hosts[0].HostKeys = []string{hostKey + " x"} }, "hosts[0].hostKeys[0]"},
		{"two host keys in one", func(r *Request) { r.Hosts[0].HostKeys = []string{hostKey + "\n" + hostKey} }, "hosts[0].hostKeys[0]"},
		{"a host key of another type", func(r *Request) { r.Hosts[0].HostKeys = []string{strings.Replace(hostKey, "ed25519", "rsa", 1)} }, "hosts[0].hostKeys[0]"},
		{"a password on two lines", func(r *Request) { r.Hosts[0].BecomePassword = "a\nb" }, "hosts[0].becomePassword"},
		{"no SSH key", func(r *Request) { r.Hosts[0].PrivateKey = "hunter2" }, "hosts[0].privateKey is not"},
		{"a key with a passphrase", func(r *Request) { r.Hosts[0].PrivateKey = privateKey(t, "x") }, "hosts[0].privateKey is protected"},
		{"a variable of Ansible's", func(r *Request) { r.Variables = map[string]any{"ansible_connection": "local"} }, `"ansible_connection"`},
		{"the same for a host", func(r *Request) { r.Hosts[0].Variables = map[string]any{"ansible_connection": "local"} }, `hosts[0].variables has the variable "ansible_connection"`},
		{"other hosts", func(r *Request) { r.Variables = map[string]any{"caplv_hosts": "localhost"} }, "caplv_hosts"},
		{"a notation of Ansible's", func(r *Request) {
			r.Variables = map[string]any{"caplv_a": []any{map[string]any{"__ansible_vault": "x"}}}
		}, "variables.caplv_a[0] has the key"},
		{"a template as a key", func(r *Request) { r.Variables = map[string]any{"caplv_a": map[string]any{"{{ x }}": 1}} }, "variables.caplv_a has the key"},
		{"the same name twice", func(r *Request) { r.Hosts = append(r.Hosts, r.Hosts[0]); r.Hosts[1].Address = "other" }, "hosts[1].name"},
		{"the same place twice", func(r *Request) {
			r.Hosts = append(r.Hosts, r.Hosts[0])
			r.Hosts[1].Name, r.Hosts[1].Address = "b", "KVM-1.example.com."
		}, "hosts[1].address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			r := valid(t)
			tt.change(&r)
			err := r.Validate()
			if tt.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(ReasonOf(err)).To(Equal(Rejected))
			g.Expect(err.Error()).To(ContainSubstring(tt.err))
			g.Expect(err.Error()).NotTo(ContainSubstring("hunter2"))
		})
	}
}

func TestSecrets(t *testing.T) {
	g := NewWithT(t)
	r := valid(t)
	r.Hosts[0].BecomePassword = "become"
	r.Hosts[0].Variables = map[string]any{"caplv_token": "t1", "caplv_base_images": []map[string]any{{"sources": []any{map[string]any{"username": "u", "password": "p1"}}}}}
	r.Variables = map[string]any{
		"caplv_credentials": map[string]any{"anything": "c1", "port": 7.0}, "caplv_ca_pem": "public", "caplv_private_key_file": "/key", "caplv_seal_secret": "yes", "caplv_password": "",
	}
	g.Expect(r.Secrets()).To(ConsistOf(r.Hosts[0].PrivateKey, "become", "t1", "p1", "c1", "7"))
	g.Expect(WithoutSecrets(r.Hosts[0].Variables)).To(Equal(map[string]any{
		"caplv_token": "", "caplv_base_images": []any{map[string]any{"sources": []any{map[string]any{"username": "u", "password": ""}}}},
	}))
}

// FuzzValidate looks for a request that passes and has a text where ssh or Ansible would take it for something else.
func FuzzValidate(f *testing.F) {
	good, err := json.Marshal(valid(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, "root", "host")
	f.Add(good, "-x", "a\nb")
	f.Fuzz(func(t *testing.T, data []byte, user, address string) {
		var r Request
		if json.Unmarshal(data, &r) != nil {
			return
		}
		if len(r.Hosts) > 0 {
			r.Hosts[0].User, r.Hosts[0].Address = user, address
		}
		if r.Validate() != nil {
			return
		}
		for _, h := range r.Hosts {
			for _, text := range append([]string{r.Key, string(r.Playbook), h.Name, h.Address, h.User}, append(h.HostKeys, r.SkipTags...)...) {
				if text == "" || text[0] == '-' || strings.ContainsAny(text, "\n\r\x00{}$;`%'\"\\") {
					t.Fatalf("%q has passed", text)
				}
			}
		}
	})
}
