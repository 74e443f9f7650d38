// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosthelper

import (
	"testing"

	. "github.com/onsi/gomega"
)

// FuzzHeader sends any verb and any lines: whatever the helper makes of them, nothing appears outside of /run/caplv, and
// a failure is one line with a known code.
func FuzzHeader(f *testing.F) {
	f.Add("probe", "\n")
	f.Add("stage", "name=vm\nephemeral=yes\nsize=1M\n\n")
	f.Add("stage", "name=vm\nephemeral=no\nfile=f\nbytes=1\nsha256=2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\n\nx")
	f.Add("remove", "name=vm\n\n")
	f.Add("remove", "name=../../etc\n\n")
	f.Add("stage", "name=$(touch /run/x)\nephemeral=yes\nsize=1M,uid=0\nfile=../x\n\n")
	f.Add("stage", "name=vm\nephemeral=yes\nsize=99%\nowner=root\nfile=a..b\nbytes=0\n"+
		"sha256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n\n")
	f.Add("check-boot", "path=/var/lib/caplv/boot\nfile=vmlinuz\nsha256=2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\n\n")
	f.Add("stage-boot", "path=/run/x\nfile=vmlinuz\nbytes=1\nsha256=2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\n\nx")
	f.Add("remove-boot", "path=/run/../etc\nsha256=x\n\n")
	f.Add("probe\n\nx", "a[$(touch /run/x)]=1\n\x00\n\n")
	s := newSandbox(f)
	f.Fuzz(func(t *testing.T, verb, rest string) {
		g := NewWithT(t)
		in := &sandbox{t: t, enter: s.enter, helper: s.helper}
		r := in.send("caplv-hostctl/1\n" + verb + "\n" + rest)
		g.Expect(r.Exit).To(BeElementOf(0, 1, 2))
		if r.Exit == 0 {
			g.Expect(r.Stderr).To(BeEmpty())
			g.Expect(r.Stdout).To(MatchRegexp(`^(version=1\ntmpfs=yes|staged=created|staged=unchanged|removed=yes|removed=absent|boot=present|boot=absent)\n$`))
		} else {
			g.Expect(r.Stdout).To(BeEmpty())
			g.Expect(r.Stderr).To(MatchRegexp(
				`^caplv-hostctl: (bad-request|bad-value|digest-mismatch|busy|not-ours|no-space|io): [[:print:]]+\n$`))
		}
		g.Expect(in.sh(`find /run -mindepth 1 ! -path /run/caplv ! -path '/run/caplv/*'
			find /run/caplv -mindepth 1 -maxdepth 1 ! -name '[a-z0-9]*' 2>/dev/null || :
			` + mountsBelowRun + ` | cut -d' ' -f5 | while read -r m; do
				[ "${m%/*}" = /run/caplv ] || echo "$m"
				umount -n "$m"
			done
			rm -rf /run/caplv`)).To(BeEmpty())
	})
}
