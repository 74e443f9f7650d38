// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package setup_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/setup"
)

const recorded = `{"version": "0.1.0", "mode": "session", "account": "caplv", "uid": 1001, "pools": [{"name": "default"}], "added": {"libvirt": {}}}`

func TestParse(t *testing.T) {
	for _, row := range []struct {
		name, content string
		want          setup.Facts
	}{
		{"what the roles write", recorded, setup.Facts{RolesVersion: "0.1.0", Mode: setup.ModeSession, Account: "caplv"}},
		{"a host that is not set up", "", setup.Facts{}},
		{"a host that is set up half-way", `{"added": {"libvirt": {}}}`, setup.Facts{}},
		{"a file that was cut off", recorded[:40], setup.Facts{}},
		{"something else than an object", `["0.1.0"]`, setup.Facts{}},
		{"null", `null`, setup.Facts{}},
		{"a value of another type leaves the others", `{"version": 1, "mode": "system", "account": null}`, setup.Facts{Mode: setup.ModeSystem}},
		{"a mode that there is not", `{"mode": "root"}`, setup.Facts{}},
		{"a version that is no version", `{"version": "1\u001b[2J"}`, setup.Facts{}},
		{"an account with a line break", `{"account": "caplv\n"}`, setup.Facts{}},
		{"a version without an end", `{"version": "` + strings.Repeat("1", 65) + `"}`, setup.Facts{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			NewWithT(t).Expect(setup.Parse([]byte(row.content))).To(Equal(row.want))
		})
	}
}

func TestDifferencesComeWithTheWayOut(t *testing.T) {
	for _, row := range []struct {
		name  string
		facts setup.Facts
		want  []string
	}{
		{"nothing is recorded", setup.Facts{}, nil},
		{"all is as recorded", setup.Facts{Mode: setup.ModeSystem, Account: "caplv"}, nil},
		{"another mode", setup.Facts{Mode: setup.ModeSession, Account: "caplv"},
			[]string{"set up for session mode", "spec.uri ends in /system", "playbooks/onboard_host.yml with caplv_mode=system"}},
		{"another account", setup.Facts{Mode: setup.ModeSystem, Account: "svc"}, []string{"for account svc", "spec.uri names caplv", "with caplv_user=caplv"}},
		{"both", setup.Facts{Mode: setup.ModeSession, Account: "svc"}, []string{"with caplv_mode=system", "; it was set up for account svc"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			got := row.facts.Differences(setup.ModeSystem, "caplv")
			if row.want == nil {
				g.Expect(got).To(BeEmpty())
			}
			for _, part := range row.want {
				g.Expect(got).To(ContainSubstring(part))
			}
		})
	}
}

// FuzzParse reads whatever a file could hold. What comes out fits into a status, whose schema bounds it.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{recorded, "", "null", "{}", `{"version":"\ud800","mode":"system"}`, `{"account":"` + strings.Repeat("a", 33) + `"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		facts := setup.Parse(content)
		for name, value := range map[string]string{"version": facts.RolesVersion, "mode": facts.Mode, "account": facts.Account} {
			if len(value) > 64 || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
				t.Errorf("%q gave the %s %q", content, name, value)
			}
		}
		if facts.Mode != "" && facts.Mode != setup.ModeSystem && facts.Mode != setup.ModeSession {
			t.Errorf("%q gave the mode %q", content, facts.Mode)
		}
	})
}
