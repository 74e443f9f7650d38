// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package playbooks

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// TestBrokenVariablesAreRefusedBeforeAnythingIsTouched runs against a host that cannot be reached: whoever got as far as
// touching it would say so.
func TestBrokenVariablesAreRefusedBeforeAnythingIsTouched(t *testing.T) {
	t.Parallel()
	digest := strings.Repeat("0", 64)
	mirror := func(scheme string) []any {
		return []any{map[string]any{"url": scheme + "://mirror.example.com/base.qcow2"}}
	}
	images := func(image map[string]any) map[string]any {
		if _, ok := image["sources"]; !ok {
			image["sources"] = mirror("https")
		}
		return map[string]any{"caplv_base_images": []any{image}}
	}
	for name, row := range map[string]struct {
		vars map[string]any
		says string
	}{
		"a mode that does not exist":              {map[string]any{"caplv_mode": "sessions"}, "caplv_mode"},
		"an account that is root":                 {map[string]any{"caplv_user": "root"}, "caplv_user"},
		"an account that is two words":            {map[string]any{"caplv_user": "caplv ALL=(ALL)"}, "caplv_user"},
		"a kind of virtualisation that is none":   {map[string]any{"caplv_virt_type": "xen"}, "caplv_virt_type"},
		"no keys":                                 {map[string]any{"caplv_authorized_keys": []string{}}, "caplv_authorized_keys"},
		"a key that is none":                      {map[string]any{"caplv_authorized_keys": []string{"ssh-ed25519 not-a-key"}}, "caplv_authorized_keys"},
		"a key with options":                      {map[string]any{"caplv_authorized_keys": []string{`command="sh" ssh-ed25519 AAAA`}}, "caplv_authorized_keys"},
		"a pool without a name":                   {map[string]any{"caplv_pools": []any{map[string]any{"path": "/srv/p"}}}, "name"},
		"a pool whose path goes up":               {map[string]any{"caplv_pools": []any{map[string]any{"name": "p", "path": "/srv/../etc"}}}, "caplv_pools"},
		"a pool with a setting that there is not": {map[string]any{"caplv_pools": []any{map[string]any{"name": "p", "size": 0}}}, "size"},
		"a key that is not in a list":             {map[string]any{"caplv_authorized_keys": "ssh-ed25519 AAAA"}, "caplv_authorized_keys is a text"},
		"a bridge that is not in a list":          {map[string]any{"caplv_bridges": "br0"}, "caplv_bridges is a text"},
		"a bridge with a slash":                   {map[string]any{"caplv_bridges": []string{"br0/../x"}}, "caplv_bridges"},
		"every bridge":                            {map[string]any{"caplv_bridges": []string{"all"}, "caplv_mode": "session"}, "caplv_bridges"},
		"an image without a digest":               {images(map[string]any{"name": "base.qcow2"}), "sha256"},
		"an image without a source":               {images(map[string]any{"name": "base.qcow2", "sha256": digest, "sources": []any{}}), "sources"},
		"an image in another directory":           {images(map[string]any{"name": "../base.qcow2", "sha256": digest}), "caplv_base_images"},
		"a mirror without encryption":             {images(map[string]any{"name": "base.qcow2", "sha256": digest, "sources": mirror("http")}), "https"},
		"fewer images than none to keep":          {map[string]any{"caplv_base_image_keep": -1}, "caplv_base_image_keep"},
		"a name that Kubernetes does not take":    {map[string]any{"caplv_object_name": "Host_1"}, "caplv_object_name"},
		"an address with a zone":                  {map[string]any{"caplv_host_address": "fe80::1%eth0"}, "caplv_host_address"},
		"a key to seal that is not there":         {map[string]any{"caplv_seal_secret": true, "caplv_private_key_file": "/nonexistent"}, "caplv_private_key_file"},
		"a key to seal that was not named":        {map[string]any{"caplv_seal_secret": true}, "caplv_private_key_file"},
		"a variable that asks to be a template?":  {map[string]any{"caplv_user": "{{ 'ca' ~ 'plv;id' }}"}, "caplv_user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			nobody := suite.bench.Unreachable("nobody")
			vars := variables(t, "system", row.vars)
			result, err := suite.runner.Run(t.Context(), "onboard_host.yml", only(nobody), Options{Vars: vars})
			g.Expect(err).To(HaveOccurred())
			g.Expect(result.Failed).To(HaveLen(1), result.Output)
			g.Expect(result.Failed[0]).To(ContainSubstring(row.says))
			g.Expect(result.Changed).To(BeEmpty())
			g.Expect(result.Hosts["nobody"].Unreachable).To(BeZero(), "nobody tried to reach the host")
		})
	}
}

// TestTheVariablesOfTheOtherTestsAreInOrder guards the test above: it must be their one mistake that is refused.
func TestTheVariablesOfTheOtherTestsAreInOrder(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	nobody := suite.bench.Unreachable("nobody")
	result, err := suite.runner.Run(t.Context(), "onboard_host.yml", only(nobody), Options{
		Vars: variables(t, "system", map[string]any{"ansible_ssh_timeout": 1}),
	})
	g.Expect(err).To(HaveOccurred())
	g.Expect(result.Failed).To(BeEmpty(), result.Output)
	g.Expect(result.Hosts["nobody"].Unreachable).To(Equal(1))
}
