// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostsetup"
)

const sessionHostYAML = `
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtHost
metadata: {name: h, namespace: default}
spec:
  uri: qemu+ssh://caplv@host.example.com/session
  secretRef: {name: key}
  hostKeyFingerprint: SHA256:uNiVztksCsDhcc0u9e8BrQXVUpKZIDTMczCvj3tD2sA
`

func bootstrap(more ...fields) fields {
	b := fields{"user": "admin", "secretRef": fields{"name": "root"}}
	for _, m := range more {
		maps.Copy(b, m)
	}
	return b
}

func awx(more fields) fields {
	a := fields{"url": "https://awx.example.com", "secretRef": fields{"name": "awx"}}
	maps.Copy(a, more)
	return fields{"user": "admin", "backend": "AWX", "awx": a}
}

func publicKey(g Gomega) string {
	pair, err := hostsetup.NewKeyPair("somebody")
	g.Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(string(pair.Public))
}

func TestHostsThatAreSetUp(t *testing.T) {
	key := publicKey(NewWithT(t))
	set := func(name string, value any) any { return bootstrap(fields{name: value}) }
	at := spec("bootstrap")
	check(t, sessionHostYAML, []row{
		{"the smallest is accepted", at, bootstrap(), nil},
		{"all of it is accepted", at, bootstrap(fields{
			"mode": "check", "port": int64(2222), "pools": []any{fields{"name": "default"}, fields{"name": "fast", "path": "/srv/fast"}}, "bridges": []any{"br0"},
			"authorizedFrom": []any{"192.0.2.0/24", "!192.0.2.1", "*.example.com"}, "authorizedKeys": []any{key}, "packagePolicy": "check", "reapplyInterval": "1h",
			"driftPolicy": "Repair", "timeout": "10m", "offboardOnDelete": true}), nil},
		{"the sidecar needs a Secret", at, fields{"user": "root"}, []string{"spec.bootstrap: Invalid value", "backend Sidecar needs secretRef"}},
		{"AWX needs none", at, awx(nil), nil},
		{"AWX needs to be somewhere", at, fields{"backend": "AWX"}, []string{"spec.bootstrap: Invalid value", "backend AWX needs awx"}},
		{"a Secret in another namespace cannot be named", at, set("secretRef", fields{"name": "other/root"}), []string{"spec.bootstrap.secretRef.name: Invalid value", "no Secret can have this name"}},
		{"the service account does not set itself up", at, set("user", "caplv"), []string{`spec.bootstrap.user: Invalid value: "caplv"`, "name root"}},
		{"a service account is not root", spec(), fields{"uri": "qemu+ssh://root@h.example.com/session", "secretRef": fields{"name": "key"}, "bootstrap": bootstrap()},
			[]string{"spec.uri: Invalid value", "the roles make no account"}},
		{"a service account is one that useradd takes", spec(), fields{"uri": "qemu+ssh://Caplv.x@h.example.com/session", "secretRef": fields{"name": "key"}, "bootstrap": bootstrap()},
			[]string{"spec.uri: Invalid value", "lower-case letters"}},
		{"bridges are for session mode", spec(), fields{"uri": "qemu+ssh://caplv@h.example.com/system", "secretRef": fields{"name": "key"},
			"bootstrap": bootstrap(fields{"bridges": []any{"br0"}})}, []string{"spec.bootstrap.bridges: Invalid value", "session mode only"}},
		{"a key with options is refused", at, set("authorizedKeys", []any{"no-pty " + key}), []string{"spec.bootstrap.authorizedKeys[0]", "without options"}},
		{"a key of an unknown shape is refused", at, set("authorizedKeys", []any{"ssh-ed25519 AAAA"}), []string{"spec.bootstrap.authorizedKeys[0]: Invalid value", "copy the line of a .pub file"}},
		{"sources that only exclude are refused", at, set("authorizedFrom", []any{"!192.0.2.1"}), []string{"spec.bootstrap.authorizedFrom: Invalid value", "let nobody in"}},
		{"a pool at the top is refused", at, set("pools", []any{fields{"name": "p", "path": "/srv"}}), []string{"spec.bootstrap.pools[0].path: Invalid value", "two components"}},
		{"a pool with .. is refused", at, set("pools", []any{fields{"name": "p", "path": "/srv/../etc"}}), []string{"spec.bootstrap.pools[0].path: Invalid value", "write /etc"}},
		{"two pools in one place are refused", at, set("pools", []any{fields{"name": "p", "path": "/srv/p"}, fields{"name": "q", "path": "/srv/p"}}),
			[]string{"spec.bootstrap.pools[1].path: Duplicate value", ""}},
		{"a pool's name has a length", at, set("pools", []any{fields{"name": strings.Repeat("p", 64)}}), []string{"spec.bootstrap.pools[0].name: Too long", ""}},
		{"an interval that hammers is refused", at, set("reapplyInterval", "1m"), []string{"spec.bootstrap.reapplyInterval: Invalid value", "at least 10m"}},
	})
}

// dataTexts are fields that a hostile text may be in: it names something, and nobody evaluates it.
var dataTexts = map[string]bool{
	"firmwarePath": true, "nvramTemplatePath": true, "bootstrap.awx.organization": true, "bootstrap.awx.jobTemplatePrefix": true,
}

// textFields are the paths of all fields below a type that hold a text. Those of lists and objects in them follow after a dot.
func textFields(t reflect.Type, path string) []string {
	switch {
	case t == reflect.TypeFor[metav1.Duration]() || t.Kind() == reflect.String:
		return []string{path}
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice:
		return textFields(t.Elem(), path)
	case t.Kind() != reflect.Struct:
		return nil
	}
	var found []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		found = append(found, textFields(f.Type, strings.TrimPrefix(path+"."+name, "."))...)
	}
	return found
}

// put writes a text into a field of a spec that is otherwise in order.
func put(path, text string) fields {
	b := bootstrap(fields{"awx": awx(nil)["awx"]})
	s := fields{"uri": "qemu+ssh://caplv@host.example.com/session", "secretRef": fields{"name": "key"}, "bootstrap": b}
	switch path {
	case "nvramTemplatePath":
		s["firmwarePath"] = "/usr/share/x"
	case "bootstrap.pools.path":
		b["pools"] = []any{fields{"name": "p", "path": text}}
		return s
	case "bootstrap.pools.name":
		b["pools"] = []any{fields{"name": text}}
		return s
	}
	var value any = text
	if slices.Contains([]string{"bootstrap.bridges", "bootstrap.authorizedFrom", "bootstrap.authorizedKeys"}, path) {
		value = []any{text}
	}
	_ = unstructured.SetNestedField(s, value, strings.Split(path, ".")...)
	return s
}

func TestHostileTextsAreRefusedOrData(t *testing.T) {
	paths := textFields(reflect.TypeFor[infrav1.LibvirtHostSpec](), "")
	NewWithT(t).Expect(len(paths)).To(BeNumerically(">", 20), "%v", paths)
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			for _, hostile := range []string{
				"{{ lookup('pipe','id') }}", "{% set x = 1 %}", "; id", "$(id)", "`id`", "a\nb", "-oProxyCommand=id", "/srv/{{ x }}", "/srv/a;id", "/srv/a\nb", "/srv/$(id)",
				"qemu+ssh://{{ x }}@h/session", "qemu+ssh://caplv@-oProxyCommand=id/session", "qemu+ssh://caplv@$(id)/session",
				"https://a/\n{{ x }}", "/api/{{ x }}", "ssh-ed25519 AAAA {{ x }}",
			} {
				g := NewWithT(t)
				u := &unstructured.Unstructured{}
				g.Expect(yaml.Unmarshal([]byte(sessionHostYAML), &u.Object)).To(Succeed())
				u.Object["spec"] = put(path, hostile)
				err := suite.cp.Client().Create(t.Context(), u, client.DryRunAll)
				if err == nil {
					g.Expect(dataTexts[path] && !strings.Contains(hostile, "\n")).To(BeTrue(), "%q is accepted", hostile)
					continue
				}
				g.Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%q: %v", hostile, err)
			}
		})
	}
}
