// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostsetup

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/hosturi"
)

func wanted() *infrav1.LibvirtHost {
	lh := &infrav1.LibvirtHost{}
	lh.Name, lh.Namespace, lh.UID = "h", "default", "u1"
	lh.Spec.URI = "qemu+ssh://svc@b:2222/session"
	lh.Spec.Bootstrap = &infrav1.HostBootstrap{
		User: "root", Pools: []infrav1.HostPool{{Name: "default"}, {Name: "fast", Path: "/srv/fast"}}, Bridges: []string{"br0"},
		AuthorizedFrom: []string{"192.0.2.0/24"}, PackagePolicy: infrav1.PackagesCheck, Timeout: &metav1.Duration{Duration: time.Minute},
	}
	return lh
}

func uriOf(g *WithT, lh *infrav1.LibvirtHost) hosturi.URI {
	uri, err := hosturi.Parse(lh.Spec.URI)
	g.Expect(err).NotTo(HaveOccurred())
	return uri
}

func TestVariablesAreThoseOfTheRoles(t *testing.T) {
	g := NewWithT(t)
	lh := wanted()
	variables := Variables(lh, uriOf(g, lh), []string{"ssh-ed25519 AAAA"})
	g.Expect(variables).To(Equal(map[string]any{
		"caplv_mode": "session", "caplv_user": "svc", "caplv_authorized_keys": []any{"ssh-ed25519 AAAA"}, "caplv_authorized_from": []any{"192.0.2.0/24"},
		"caplv_virt_type": "kvm", "caplv_package_policy": "check", "caplv_bridges": []any{"br0"},
		"caplv_pools": []any{map[string]any{"name": "default"}, map[string]any{"name": "fast", "path": "/srv/fast"}},
	}))
	known := map[string]bool{}
	for _, role := range []string{"libvirt", "service_account", "host_helper", "session_mode", "storage_pool", "host_facts", "verify_host"} {
		content, err := os.ReadFile("../../roles/" + role + "/meta/argument_specs.yml")
		g.Expect(err).NotTo(HaveOccurred())
		var specs struct {
			ArgumentSpecs map[string]struct {
				Options map[string]any `json:"options"`
			} `json:"argument_specs"`
		}
		g.Expect(yaml.Unmarshal(content, &specs)).To(Succeed())
		for name := range specs.ArgumentSpecs["main"].Options {
			known[name] = true
		}
	}
	for name := range variables {
		g.Expect(known).To(HaveKey(name), "no role has this variable")
	}
}

func TestTheRequestIsOfTheRecordedRun(t *testing.T) {
	g := NewWithT(t)
	lh := wanted()
	v := View{Host: lh, Desired: "want", Now: now}
	variables := map[string]any{"caplv_package_policy": "install"}
	run := NewRun(v, Action{Playbook: ansible.OnboardHost, Check: true})
	request := v.Request(run, ansible.Host{Name: HostName(lh)}, variables)
	g.Expect(request).To(Equal(ansible.Request{
		Key: run.Key, Playbook: ansible.OnboardHost, Hosts: []ansible.Host{{Name: "h.default"}}, Variables: variables, SkipTags: []string{"cluster_objects"}, Check: true,
		Deadline: time.Minute, Submitted: run.SubmittedAt.Time,
	}))
	request = v.Request(NewRun(v, Action{Playbook: ansible.OffboardHost}), ansible.Host{}, nil)
	g.Expect(request.Variables).To(BeEmpty(), "the record of the host knows")

	lh.Status.Bootstrap = &infrav1.HostBootstrapStatus{AppliedStateHash: "want"}
	repair := NewRun(v, Action{Playbook: ansible.OnboardHost})
	g.Expect(v.Request(repair, ansible.Host{}, variables).Variables).To(HaveKeyWithValue("caplv_package_policy", "install"))
	v.InUse = true
	g.Expect(v.Request(repair, ansible.Host{}, variables).Variables).To(HaveKeyWithValue("caplv_package_policy", "check"))
	g.Expect(variables).To(HaveKeyWithValue("caplv_package_policy", "install"), "the original stays")
}

func TestTheDesiredStateIsWhatTheRolesBringAbout(t *testing.T) {
	g := NewWithT(t)
	hash := func(change func(*infrav1.LibvirtHost), keys ...string) string {
		lh := wanted()
		change(lh)
		hash, err := DesiredState(Variables(lh, uriOf(g, lh), keys))
		g.Expect(err).NotTo(HaveOccurred())
		return hash
	}
	same := hash(func(*infrav1.LibvirtHost) {}, "k")
	g.Expect(same).To(MatchRegexp("^[0-9a-f]{32}$"))
	for name, change := range map[string]func(*infrav1.LibvirtHost){
		"user": func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.User = "admin" },
		"port": func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.Port = 1 },
		"mode": func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.Mode = infrav1.BootstrapCheck },
		"when": func(lh *infrav1.LibvirtHost) {
			lh.Spec.Bootstrap.ReapplyInterval = &metav1.Duration{Duration: time.Hour}
		},
		"host": func(lh *infrav1.LibvirtHost) { lh.Spec.URI = "qemu+ssh://svc@other/session" },
	} {
		g.Expect(hash(change, "k")).To(Equal(same), name)
	}
	for name, change := range map[string]func(*infrav1.LibvirtHost){
		"bridges":  func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.Bridges = nil },
		"pools":    func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.Pools = nil },
		"from":     func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.AuthorizedFrom = nil },
		"packages": func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.PackagePolicy = "" },
		"account":  func(lh *infrav1.LibvirtHost) { lh.Spec.URI = "qemu+ssh://other@b/session" },
		"daemon":   func(lh *infrav1.LibvirtHost) { lh.Spec.URI = "qemu+ssh://svc@b/system" },
		"virtType": func(lh *infrav1.LibvirtHost) { lh.Spec.VirtType = infrav1.VirtTypeQEMU },
	} {
		g.Expect(hash(change, "k")).NotTo(Equal(same), name)
	}
	g.Expect(hash(func(*infrav1.LibvirtHost) {}, "other")).NotTo(Equal(same), "keys")
}

// hostile are texts that would do something if anybody evaluated them.
var hostile = []string{"{{ lookup('pipe','id') }}", "; id", "$(id)", "a\nb", "-oProxyCommand=id", "`id`", "{% raw %}", "a b\x00"}

func TestHostileTextsAreDataOrNoKeys(t *testing.T) {
	g := NewWithT(t)
	for _, text := range hostile {
		lh := wanted()
		lh.Spec.Bootstrap.Pools = []infrav1.HostPool{{Name: infrav1.ResourceName(text), Path: text}}
		lh.Spec.Bootstrap.Bridges, lh.Spec.Bootstrap.AuthorizedFrom = []string{text}, []string{text}
		variables := Variables(lh, uriOf(g, lh), []string{text})
		g.Expect(variables["caplv_pools"]).To(Equal([]any{map[string]any{"name": text, "path": text}}))
		for _, name := range []string{"caplv_bridges", "caplv_authorized_from", "caplv_authorized_keys"} {
			g.Expect(variables[name]).To(Equal([]any{text}))
		}
		g.Expect(CheckPublicKey(text)).NotTo(Succeed())
	}
}

func TestKeys(t *testing.T) {
	g := NewWithT(t)
	pair, err := NewKeyPair("caplv@h.default")
	g.Expect(err).NotTo(HaveOccurred())
	public, err := PublicHalf(pair.Private)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(pair.Public)).To(Equal(public + " caplv@h.default\n"))
	key, comment, _, _, err := ssh.ParseAuthorizedKey(pair.Public)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(key.Type()).To(Equal(ssh.KeyAlgoED25519))
	g.Expect(comment).To(Equal("caplv@h.default"))
	other, err := NewKeyPair("x")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bytes.Equal(other.Private, pair.Private)).To(BeFalse())

	line := string(bytes.TrimSpace(pair.Public))
	g.Expect(AuthorizedKeys(public, []string{line, " " + string(other.Public), "no"})).To(Equal([]string{public, string(bytes.TrimSpace(other.Public))}))

	_, err = PublicHalf([]byte("not a key"))
	g.Expect(err).To(MatchError(ContainSubstring("unencrypted")))
	for text, want := range map[string]string{
		line: "", public: "", public + " a comment": "",
		"no-pty " + line: "options", `command="id" ` + line: "options", line + "\n" + line: "line break", "ssh-ed25519 AAAA": "not a public key",
		strings.Replace(line, "ssh-ed25519", "ssh-rsa", 1): "key", "": "not a public key", "# " + line: "not a public key",
	} {
		err := CheckPublicKey(text)
		if want == "" {
			g.Expect(err).NotTo(HaveOccurred(), text)
		} else {
			g.Expect(err).To(MatchError(ContainSubstring(want)), text)
		}
	}
}
