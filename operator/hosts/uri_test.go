// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts_test

import (
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
		{name: "a password is refused and not repeated", uri: "qemu+ssh://a:hunter2@b/system", wantErr: "holds a password"},
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
