// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosthelper

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// expectRefusal checks code and exit status, and that there is one line and nothing else.
func expectRefusal(g *WithT, r result, code string) {
	exit := 1
	if strings.HasPrefix(code, "bad-") {
		exit = 2
	}
	g.Expect(r.Stdout).To(BeEmpty())
	g.Expect(r.Stderr).To(MatchRegexp(`^caplv-hostctl: ` + code + `: [[:print:]]+\n$`))
	g.Expect(r.Exit).To(Equal(exit))
}

func TestARequestThatIsNotWellFormedChangesNothing(t *testing.T) {
	s := newSandbox(t)
	file := []string{"file=f", "bytes=1", "sha256=" + strings.Repeat("0", 64)}
	stageWith := func(keys ...string) string { return request("stage", keys...) }
	staged := func(keys ...string) string { return stage(payload, append([]string{"ephemeral=yes"}, keys...)...) }
	for _, row := range []struct {
		name    string
		request string
		code    string
	}{
		{"nothing at all", "", "bad-request"},
		{"another protocol", "caplv-hostctl/2\nprobe\n\n", "bad-request"},
		{"no verb", "caplv-hostctl/1\n", "bad-request"},
		{"an unknown verb", request("destroy"), "bad-request"},
		{"a verb that is a command", request("probe; touch /run/x"), "bad-request"},
		{"a header that does not end", "caplv-hostctl/1\nremove\nname=vm\n", "bad-request"},
		{"a line that does not end", "caplv-hostctl/1\nremove\nname=vm", "bad-request"},
		{"a line without end", "caplv-hostctl/1\nremove\nname=" + strings.Repeat("a", 100000), "bad-request"},
		{"lines that end as on Windows", "caplv-hostctl/1\r\nprobe\r\n\r\n", "bad-request"},
		{"a key of another verb", request("remove", "name=vm", "size=1M"), "bad-request"},
		{"a key for a verb that has none", request("probe", "name=vm"), "bad-request"},
		{"a key that is there twice", request("remove", "name=vm", "name=vm"), "bad-request"},
		{"an unknown key", staged("name=vm", "colour=red"), "bad-request"},
		{"a key that is code", request("remove", "name[$(touch /run/x)]=vm"), "bad-request"},
		{"a line that is not a pair", request("remove", "name"), "bad-request"},
		{"a value with a blank", request("remove", "name=a b"), "bad-request"},
		{"a value with a slash", request("remove", "name=../x"), "bad-request"},
		{"a value with a tab", request("remove", "name=a\tb"), "bad-request"},
		{"a value that is code", request("remove", "name=$(touch)"), "bad-request"},
		{"a value that is too long", request("remove", "name="+strings.Repeat("a", 129)), "bad-request"},
		{"no name", request("remove"), "bad-value"},
		{"an empty name", request("remove", "name="), "bad-value"},
		{"a name that is the parent", request("remove", "name=.."), "bad-value"},
		{"a name with a dot", request("remove", "name=a.b"), "bad-value"},
		{"a name with an upper-case letter", request("remove", "name=VM"), "bad-value"},
		{"a name with 64 characters", request("remove", "name="+strings.Repeat("a", 64)), "bad-value"},
		{"a name that starts with a hyphen", request("remove", "name=-rf"), "bad-value"},
		{"a name that ends with a hyphen", request("remove", "name=vm-"), "bad-value"},
		{"no name to stage", staged(), "bad-value"},
		{"no answer whether ephemeral", stage(payload, "name=vm"), "bad-value"},
		{"another answer whether ephemeral", stage(payload, "name=vm", "ephemeral=maybe"), "bad-value"},
		{"size 0", staged("name=vm", "size=0"), "bad-value"},
		{"size 0%", staged("name=vm", "size=0%"), "bad-value"},
		{"size 101%", staged("name=vm", "size=101%"), "bad-value"},
		{"size with another option", staged("name=vm", "size=1M,uid=1"), "bad-request"},
		{"size with code", staged("name=vm", "size=1T;x"), "bad-request"},
		{"size in terabytes", staged("name=vm", "size=1T"), "bad-value"},
		{"size below nothing", staged("name=vm", "size=-1"), "bad-value"},
		{"size that overflows", staged("name=vm", "size=99999999999999999999"), "bad-value"},
		{"another owner", staged("name=vm", "owner=nobody"), "bad-value"},
		{"a file that is hidden", stageWith("name=vm", "ephemeral=no", "file=.f", file[1], file[2]), "bad-value"},
		{"a file with an upper-case letter", stageWith("name=vm", "ephemeral=no", "file=F", file[1], file[2]), "bad-value"},
		{"a file with 65 characters", stageWith("name=vm", "ephemeral=no", "file="+strings.Repeat("f", 65), file[1], file[2]), "bad-value"},
		{"bytes without a file", stageWith("name=vm", "ephemeral=no", file[1], file[2]), "bad-value"},
		{"a file without a length", stageWith("name=vm", "ephemeral=no", file[0], file[2]), "bad-value"},
		{"a length in octal", stageWith("name=vm", "ephemeral=no", file[0], "bytes=01", file[2]), "bad-value"},
		{"a length below nothing", stageWith("name=vm", "ephemeral=no", file[0], "bytes=-1", file[2]), "bad-value"},
		{"a length beyond the limit", stageWith("name=vm", "ephemeral=no", file[0], "bytes=67108865", file[2]), "bad-value"},
		{"a file without a digest", stageWith("name=vm", "ephemeral=no", file[0], file[1]), "bad-value"},
		{"a digest in upper case", stageWith("name=vm", "ephemeral=no", file[0], file[1], "sha256="+strings.Repeat("A", 64)), "bad-value"},
		{"a payload with another digest", stageWith(append(file, "name=vm", "ephemeral=yes")...) + "x", "digest-mismatch"},
		{"a payload that ends early", strings.TrimSuffix(staged("name=vm"), "end"), "bad-request"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			expectRefusal(g, s.send(row.request), row.code)
			// The directory of all machines is harmless, and the only thing that a payload needs before it is checked.
			g.Expect(strings.TrimPrefix(s.tree(), "d 711 caplv \n")).To(BeEmpty())
		})
	}
}

func TestAnyArgumentIsRefused(t *testing.T) {
	s := newSandbox(t)
	for _, arg := range []string{"probe", "", "--help"} {
		t.Run("argument '"+arg+"'", func(t *testing.T) {
			g := NewWithT(t)
			expectRefusal(g, s.send(request("probe"), arg), "bad-request")
		})
	}
}

func TestWhatTheHelperDidNotMakeIsLeftAlone(t *testing.T) {
	staging, removing := stage(payload, "name=vm", "ephemeral=yes", "size=8M"), request("remove", "name=vm")
	both := []string{staging, removing}
	for _, row := range []struct {
		name      string
		prepare   string
		requests  []string
		needsRoot bool
	}{
		{"a link in place of the directory of all machines", "mkdir -p /run/outside/vm; ln -s outside /run/caplv", both, false},
		{"a link to nothing in place of the directory of all machines", "ln -s outside /run/caplv", both, false},
		{"a file in place of the directory of all machines", "touch /run/caplv", both, false},
		{"a directory of all machines that others can write to", "mkdir -m 777 /run/caplv", both, false},
		{"a directory of all machines that is not root's", "mkdir /run/caplv; chown 65534 /run/caplv", both, true},
		{"a parent that others can write to", "mkdir /run/caplv; chmod 1777 /run", both, false},
		{"a link in place of the machine's directory", "mkdir /run/caplv /run/outside; touch /run/outside/f; ln -s ../outside /run/caplv/vm", both, false},
		{"a link to nothing in place of the machine's directory", "mkdir /run/caplv; ln -s ../outside /run/caplv/vm", both, false},
		{"a file in place of the machine's directory", "mkdir /run/caplv; touch /run/caplv/vm", both, false},
		{"a machine's directory that others can write to", "mkdir -p /run/caplv/vm; chmod 777 /run/caplv/vm", []string{staging}, false},
		{"a machine's directory that is not root's", "mkdir -p /run/caplv/vm; chown 65534 /run/caplv/vm", []string{staging}, true},
		{"another tmpfs on the directory", "mkdir -p /run/caplv/vm; mount -n -t tmpfs -o mode=755 other /run/caplv/vm; touch /run/caplv/vm/f", both, false},
		{"the tmpfs of another machine on the directory", "mkdir -p /run/caplv/vm; mount -n -t tmpfs -o mode=755 caplv-vm2 /run/caplv/vm", both, false},
		{"a directory bound to the directory", "mkdir -p /run/caplv/vm /run/outside; mount -n --bind /run/outside /run/caplv/vm; touch /run/outside/f", both, false},
		{"another mount under ours",
			"mkdir -p /run/caplv/vm; mount -n -t tmpfs -o mode=755 other /run/caplv/vm; mount -n -t tmpfs -o mode=755 caplv-vm /run/caplv/vm", both, false},
		{"a link in place of the file", "mkdir -p /run/caplv/vm; touch /run/outside; ln -s ../../outside /run/caplv/vm/ignition.json",
			[]string{stage(payload, "name=vm", "ephemeral=no"), removing}, false},
		{"a directory in place of the file", "mkdir -p /run/caplv/vm/ignition.json",
			[]string{stage(payload, "name=vm", "ephemeral=no"), removing}, false},
		{"a directory beside the file", "mkdir -p /run/caplv/vm/sub; touch /run/caplv/vm/f /run/caplv/vm/sub/f", []string{removing}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.needsRoot && os.Geteuid() != 0 {
				t.Skip("needs root: a user namespace has no second user to own a file")
			}
			t.Parallel()
			g := NewWithT(t)
			s := newSandbox(t)
			s.sh(row.prepare)
			before := s.tree()
			for _, r := range row.requests {
				expectRefusal(g, s.send(r), "not-ours")
				g.Expect(s.tree()).To(Equal(before))
			}
		})
	}
}

func TestAPayloadThatDoesNotFitTakesBackWhatWasMade(t *testing.T) {
	g := NewWithT(t)
	s := newSandbox(t)
	expectRefusal(g, s.send(stage(strings.Repeat("x", 100000), "name=vm", "ephemeral=yes", "size=4k")), "no-space")
	g.Expect(s.tree()).To(Equal("d 711 caplv \n"))
}

func TestAPayloadThatDoesNotFitLeavesTheMachineAsItWas(t *testing.T) {
	g := NewWithT(t)
	s := newSandbox(t)
	g.Expect(s.send(stage("small", "name=vm", "ephemeral=yes", "size=8k"))).To(HaveField("Exit", 0))
	before := s.tree()
	expectRefusal(g, s.send(stage(strings.Repeat("x", 100000), "name=vm", "ephemeral=yes", "size=8k")), "no-space")
	g.Expect(s.tree()).To(Equal(before))
	g.Expect(s.sh("cat /run/caplv/vm/ignition.json")).To(Equal("small"))
}
