// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosturi_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/hosturi"
)

func TestParse(t *testing.T) {
	for _, row := range []struct {
		name, uri string
		want      hosturi.URI
		wantErr   string
	}{
		{name: "a system URI uses port 22", uri: "qemu+ssh://caplv@host.example.com/system",
			want: hosturi.URI{User: "caplv", Address: "host.example.com:22", Path: hosturi.PathSystem}},
		{name: "a session URI keeps its port", uri: "qemu+ssh://svc@192.0.2.1:2222/session",
			want: hosturi.URI{User: "svc", Address: "192.0.2.1:2222", Path: hosturi.PathSession}},
		{name: "an IPv6 address keeps its brackets", uri: "qemu+ssh://svc@[2001:db8::1]/system",
			want: hosturi.URI{User: "svc", Address: "[2001:db8::1]:22", Path: hosturi.PathSystem}},
		{name: "an address that is none is refused", uri: "qemu+ssh://svc@[2001:db8:::1]/system", wantErr: "not a URI"},
		{name: "a port out of range is refused", uri: "qemu+ssh://a@b:70000/system", wantErr: "between 1 and 65535"},
		{name: "another path is refused", uri: "qemu+ssh://a@b/embed", wantErr: "/system or /session"},
		{name: "a password is refused and not repeated", uri: "qemu+ssh://a:hunter2@b/system", wantErr: "holds a password"},
		{name: "what is no URI is refused and not repeated", uri: "qemu+ssh://a:hunter2@b:%zz/system", wantErr: "not a URI"},
		{name: "another transport is refused", uri: "qemu+tls://a@b/system", wantErr: "only qemu+ssh"},
		{name: "a missing user is refused", uri: "qemu+ssh://b/system", wantErr: "names no user"},
		{name: "query parameters are refused", uri: "qemu+ssh://a@b/system?socket=/x", wantErr: "query parameters"},
		{name: "a missing host is refused", uri: "qemu+ssh://a@/system", wantErr: "names no host"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := hosturi.Parse(row.uri)
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

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"qemu+ssh://a@b/system", "qemu+ssh://a@[::1]:22/session", "://", "qemu+ssh://a@b:/system", "qemu+ssh://%zz@b/system"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		u, err := hosturi.Parse(uri)
		if err != nil {
			return
		}
		if u.User == "" || !strings.Contains(u.Address, ":") || (u.Path != hosturi.PathSystem && u.Path != hosturi.PathSession) {
			t.Fatalf("%q became the incomplete %+v", uri, u)
		}
	})
}
