// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/virsh"
)

func TestParseURI(t *testing.T) {
	for _, row := range []struct {
		name, uri string
		want      hosts.Endpoint
		wantErr   string
	}{
		{name: "a system URI uses port 22", uri: "qemu+ssh://caplv@rhel-host-01.example.com/system",
			want: hosts.Endpoint{User: "caplv", Address: "rhel-host-01.example.com:22", Mode: virsh.ModeSystem}},
		{name: "a port is kept", uri: "qemu+ssh://svc@10.0.0.1:2222/session",
			want: hosts.Endpoint{User: "svc", Address: "10.0.0.1:2222", Mode: virsh.ModeSession}},
		{name: "an IPv6 address keeps its brackets", uri: "qemu+ssh://svc@[fd00::1]/system",
			want: hosts.Endpoint{User: "svc", Address: "[fd00::1]:22", Mode: virsh.ModeSystem}},
		{name: "another transport is refused", uri: "qemu+tls://a@b/system", wantErr: "only qemu+ssh"},
		{name: "a missing user is refused", uri: "qemu+ssh://b/system", wantErr: "names no user"},
		{name: "a password is refused and not repeated", uri: "qemu+ssh://a:hunter2@b/system", wantErr: "holds a password"},
		{name: "query parameters are refused", uri: "qemu+ssh://a@b/system?socket=/x", wantErr: "query parameters"},
		{name: "another path is refused", uri: "qemu+ssh://a@b/embed", wantErr: "/system or /session"},
		{name: "a port out of range is refused", uri: "qemu+ssh://a@b:70000/system", wantErr: "between 1 and 65535"},
		{name: "a missing host is refused", uri: "qemu+ssh://a@/system", wantErr: "names no host"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := hosts.ParseURI(row.uri)
			if row.wantErr != "" {
				g.Expect(err).To(MatchError(ContainSubstring(row.wantErr)))
				g.Expect(err.Error()).NotTo(ContainSubstring("hunter2"))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(row.want))
		})
	}
}

func FuzzParseURI(f *testing.F) {
	for _, seed := range []string{"qemu+ssh://a@b/system", "qemu+ssh://a@[::1]:22/session", "://", "qemu+ssh://a@b:/system", "qemu+ssh://%zz@b/system"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		e, err := hosts.ParseURI(uri)
		if err != nil {
			return
		}
		if e.User == "" || !strings.Contains(e.Address, ":") || (e.Mode != virsh.ModeSystem && e.Mode != virsh.ModeSession) {
			t.Fatalf("%q became the incomplete endpoint %+v", uri, e)
		}
	})
}
