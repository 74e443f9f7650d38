// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"
)

func TestEveryObjectIsAHostInItsGroups(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, environment string) {
		g := NewWithT(t)
		l := list(t, environment, source(t, "page_size: 10"), "K8S_AUTH_KUBECONFIG="+suite.cp.Kubeconfig())
		g.Expect(l.groups).To(gstruct.MatchKeys(gstruct.IgnoreExtras, gstruct.Keys{
			"system_hosts":       HaveLen(2 + crowd),
			"session_hosts":      HaveExactElements("beta.site-a"),
			"namespace_site_a":   HaveExactElements("alpha.site-a", "beta.site-a"),
			"namespace_site_b":   HaveExactElements("gamma.site-b"),
			"namespace_crowd":    HaveLen(crowd),
			"ready":              HaveExactElements("alpha.site-a"),
			"not_ready":          HaveLen(2 + crowd),
			"reason_Unreachable": HaveExactElements("beta.site-a"),
			"reason_NotProbed":   HaveLen(1 + crowd),
			"label_topology_kubernetes_io_zone_rack_1": HaveExactElements("alpha.site-a"),
			"label_environment_test":                   HaveExactElements("beta.site-a"),
		}))
		g.Expect(l.vars).To(HaveKeyWithValue("alpha.site-a", gstruct.MatchAllKeys(gstruct.Keys{
			"ansible_host": Equal("10.0.0.1"), "ansible_port": BeEquivalentTo(2222),
			"caplv_user": Equal("caplv"), "caplv_mode": Equal("system"), "caplv_virt_type": Equal("kvm"),
			"caplv_object_name": Equal("alpha"), "caplv_object_namespace": Equal("site-a"),
			"libvirthost_ready": BeTrue(), "libvirthost_reason": Equal("HostReady"), "libvirthost_machine": Equal("worker-1"),
			"libvirthost_machine_count":        BeEquivalentTo(1),
			"libvirthost_host_key_fingerprint": Equal(fingerprint), "libvirthost_libvirt_version": Equal("9.0.0"), "libvirthost_roles_version": Equal("1.2.3"),
			"libvirthost_labels": And(HaveKeyWithValue(zone, "rack-1"), HaveKeyWithValue("environment", "production")),
		})))
		g.Expect(l.vars).To(HaveKeyWithValue("beta.site-a", gstruct.MatchKeys(gstruct.IgnoreExtras, gstruct.Keys{
			"ansible_host": Equal("fd00::2"), "caplv_user": Equal("svc"), "caplv_mode": Equal("session"), "caplv_virt_type": Equal("qemu"), "libvirthost_ready": BeFalse(),
		})))
		g.Expect(l.vars["beta.site-a"]).NotTo(HaveKey("ansible_port"))
	})
}

func TestTheExampleMakesSitesOfZones(t *testing.T) {
	g := NewWithT(t)
	stdout, stderr, err := ansible(t, ".venv", "ansible-inventory", []string{"K8S_AUTH_KUBECONFIG=" + suite.cp.Kubeconfig()},
		"-i", "inventory/caplv.libvirthosts.yml", "--graph", "site_rack_1")
	g.Expect(err).NotTo(HaveOccurred(), stderr)
	g.Expect(stdout).To(Equal("@site_rack_1:\n  |--alpha.site-a\n"))
}

func TestARoleInOneNamespaceIsEnoughForIt(t *testing.T) {
	viewer := accessOf(t, suite.viewer)
	environ := []string{"K8S_AUTH_HOST=" + viewer.server, "K8S_AUTH_API_KEY=" + viewer.token, "K8S_AUTH_SSL_CA_CERT=" + viewer.caFile, "K8S_AUTH_VERIFY_SSL=True"}
	eachEnvironment(t, func(t *testing.T, environment string) {
		g := NewWithT(t)
		l := list(t, environment, source(t, "namespaces: [site-a]", "label_selector: environment in (production, test)"), environ...)
		g.Expect(l.vars).To(HaveLen(2))
		l = list(t, environment, source(t, "namespaces: [site-a]", "label_selector: environment=test", "group_by: [mode]"), environ...)
		g.Expect(l.groups).To(gstruct.MatchAllKeys(gstruct.Keys{"session_hosts": HaveExactElements("beta.site-a")}))
	})
	t.Run("and the error for another one says what is missing", func(t *testing.T) {
		g := NewWithT(t)
		_, stderr, err := ansible(t, ".venv", "ansible-inventory", environ, "-i", source(t), "--list")
		g.Expect(err).To(HaveOccurred(), "half an inventory is no inventory")
		g.Expect(stderr).To(And(ContainSubstring("403"), ContainSubstring("needs the verb list on libvirthosts"), Not(ContainSubstring(viewer.token))))
	})
}

func TestWhatIsWrongIsNamedBySetting(t *testing.T) {
	viewer := accessOf(t, suite.viewer)
	for _, row := range []struct {
		name    string
		lines   []string
		environ []string
		want    string
	}{
		{"no API server at all", nil, nil, "there is no Kubernetes API server to ask: set `host` with `api_key`"},
		{"a certificate of an unknown authority", nil, []string{"K8S_AUTH_HOST=" + viewer.server, "K8S_AUTH_API_KEY=" + viewer.token}, "its certificate is not trusted"},
		{"a token that is none", nil, []string{"K8S_AUTH_HOST=" + viewer.server, "K8S_AUTH_API_KEY=nonsense", "K8S_AUTH_SSL_CA_CERT=" + viewer.caFile}, "see `api_key`"},
		{"a selector that is none", []string{"label_selector: a==b=c"}, []string{"K8S_AUTH_KUBECONFIG=" + suite.cp.Kubeconfig()}, "see `label_selector`"},
		{"a context that does not exist", []string{"context: nowhere"}, []string{"K8S_AUTH_KUBECONFIG=" + suite.cp.Kubeconfig()}, "has no context 'nowhere'"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			_, stderr, err := ansible(t, ".venv", "ansible-inventory", row.environ, "-i", source(t, row.lines...), "--list")
			g.Expect(err).To(HaveOccurred())
			g.Expect(stderr).To(ContainSubstring(row.want))
			g.Expect(stderr).NotTo(ContainSubstring(viewer.token))
		})
	}
}

func TestTextOfAnObjectIsNeverATemplate(t *testing.T) {
	marker := "/tmp/caplv-inventory-attack"
	eachEnvironment(t, func(t *testing.T, environment string) {
		g := NewWithT(t)
		stdout, stderr, err := ansible(t, environment, "ansible", []string{"KUBECONFIG=" + suite.cp.Kubeconfig()},
			"-i", source(t, "compose: {copy: libvirthost_labels}"), "not_ready", "-m", "ansible.builtin.debug", "-a", "var=hostvars[inventory_hostname]")
		g.Expect(err).NotTo(HaveOccurred(), stderr)
		g.Expect(stdout).To(ContainSubstring("gamma.site-b"))
		g.Expect(stdout).NotTo(ContainSubstring("lookup"))
		g.Expect(marker).NotTo(BeAnExistingFile())
	})
}

func TestACachedAnswerOutlivesTheAPIServer(t *testing.T) {
	viewer := accessOf(t, suite.viewer)
	eachEnvironment(t, func(t *testing.T, environment string) {
		g := NewWithT(t)
		address, stop := forward(t, viewer.server)
		cache := t.TempDir()
		environ := []string{"K8S_AUTH_KUBECONFIG=" + kubeconfigFor(t, suite.viewer, "https://"+address)}
		lines := []string{"namespaces: [site-a]", "timeout: 5", "cache: true", "cache_plugin: jsonfile", "cache_connection: " + cache}
		cached := source(t, lines...)
		before := list(t, environment, cached, environ...)
		stop()
		g.Expect(list(t, environment, cached, environ...)).To(Equal(before))

		files, err := filepath.Glob(filepath.Join(cache, "*"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(files).To(HaveLen(1))
		content, err := os.ReadFile(files[0])
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(content)).To(And(ContainSubstring("alpha"), Not(ContainSubstring(viewer.token)), Not(ContainSubstring("secretRef"))))

		_, stderr, err := ansible(t, environment, "ansible-inventory", environ, "-i", source(t, "namespaces: [site-a]"), "--list")
		g.Expect(err).To(HaveOccurred())
		g.Expect(stderr).To(ContainSubstring("no connection"))
	})
}

// forward passes connections on to a server until it is stopped.
func forward(t *testing.T, server string) (address string, stop func()) {
	t.Helper()
	g := NewWithT(t)
	target, err := url.Parse(server)
	g.Expect(err).NotTo(HaveOccurred())
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", target.Host)
			if err != nil {
				_ = from.Close()
				continue
			}
			go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
			go func() { _, _ = io.Copy(from, to); _ = from.Close() }()
		}
	}()
	return listener.Addr().String(), func() { _ = listener.Close() }
}
