// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/hostconn"
)

// ready is what a host says that has everything.
const ready = `account=caplv
uid=1001
runtime=1001 700
linger=yes
helper=/usr/lib/qemu/qemu-bridge-helper
helpermode=0 4755
helperexecutable=yes
helpercapabilities=
aclfile=/etc/qemu/bridge.conf
aclstate=readable
acl=allow br0
tun=usable
kvm=usable
bridge=br0
bridge=virbr0
end=yes
`

// answer is a transport that always gets the same answer.
type answer struct {
	stdout string
	err    error
}

func (a answer) Exec(_ context.Context, command string, stdin io.Reader) (hostconn.Result, error) {
	if text, err := io.ReadAll(stdin); err != nil || command != "exec sh -s" || string(text) != script {
		return hostconn.Result{}, errors.New("something else than the constant script was sent")
	}
	return hostconn.Result{Stdout: []byte(a.stdout), Stderr: []byte("stat: odd\n"), ExitCode: 3}, a.err
}

func TestEachMissingPieceIsNamedWithTheWayOut(t *testing.T) {
	kvm := Query{VirtType: "kvm"}
	on := func(bridges ...string) Query { return Query{VirtType: "qemu", Bridges: bridges} }
	for _, row := range []struct {
		name string
		// from and to replace a part of what a host in order says.
		from, to  string
		query     Query
		wantPiece string
		wantText  string
	}{
		{"nothing is missing", "", "", kvm, "", ""},
		{"nothing is missing for a bridge", "", "", on("br0"), "", ""},
		{"the runtime directory is missing", "runtime=1001 700\n", "", kvm, PieceRuntimeDirectory, "loginctl enable-linger caplv"},
		{"the runtime directory is somebody else's", "runtime=1001", "runtime=0", kvm, PieceRuntimeDirectory, "belongs to UID 0"},
		{"lingering is off", "linger=yes", "linger=no", kvm, PieceLinger, "loginctl enable-linger caplv"},
		{"lingering is unknown", "linger=yes", "linger=", kvm, PieceLinger, "off for account caplv"},
		{"there is no bridge helper", "helper=/usr/lib/qemu/qemu-bridge-helper", "x=", kvm, PieceBridgeHelper, "install"},
		{"the bridge helper is for others", "helperexecutable=yes\n", "", kvm, PieceBridgeHelper, "may not execute"},
		{"the bridge helper is not setuid", "0 4755", "0 755", kvm, PieceBridgeHelper, "chmod u+s /usr/lib/qemu/qemu-bridge-helper"},
		{"the bridge helper is setuid, and not root's", "0 4755", "1001 4755", kvm, PieceBridgeHelper, "neither setuid root"},
		{"a capability is as good", "0 4755\nhelperexecutable=yes\nhelpercapabilities=", "0 755\nhelperexecutable=yes\nhelpercapabilities=/usr/x cap_net_admin=ep", kvm, "", ""},
		{"an older getcap writes it otherwise", "0 4755\nhelperexecutable=yes\nhelpercapabilities=", "0 755\nhelperexecutable=yes\nhelpercapabilities=/usr/x = cap_net_admin,cap_chown+ep", kvm, "", ""},
		{"a capability that is not effective is not", "0 4755\nhelperexecutable=yes\nhelpercapabilities=", "0 755\nhelperexecutable=yes\nhelpercapabilities=/usr/x cap_net_admin=p", kvm, PieceBridgeHelper, "cap_net_admin"},
		{"the ACL is missing", "aclstate=readable\nacl=allow br0", "aclstate=missing", kvm, PieceBridgeACL, `add a line "allow BRIDGE" to /etc/qemu/bridge.conf`},
		{"the ACL is unreadable", "aclstate=readable\nacl=allow br0", "aclstate=unreadable", kvm, PieceBridgeACL, "chmod 644 /etc/qemu/bridge.conf"},
		{"the ACL allows nothing", "acl=allow br0\n", "", kvm, PieceBridgeACL, "allows no bridge"},
		{"the ACL denies everything", "acl=allow br0", "acl=allow br0\nacl=deny all", kvm, PieceBridgeACL, "allows no bridge"},
		{"the ACL has a line without a bridge", "acl=allow br0", "acl=allow", kvm, PieceBridgeACL, `refuses: "allow"`},
		{"the ACL has an unknown word", "acl=allow br0", "acl=permit br0", kvm, PieceBridgeACL, `refuses: "permit br0"`},
		{"the ACL allows another bridge", "acl=allow br0", "acl=allow br7", on("br0"), PieceBridgeACL, `add a line "allow br0"`},
		{"the ACL allows all bridges", "acl=allow br0", "acl=allow all", on("br0", "virbr0"), "", ""},
		{"the ACL denies the bridge, before it allows all", "acl=allow br0", "acl=deny br0\nacl=allow all", on("br0"), PieceBridgeACL, "remove the deny line"},
		{"the ACL denies another bridge", "acl=allow br0", "acl=deny br1\nacl=allow all", on("br0"), "", ""},
		{"the bridge does not exist", "bridge=br0\n", "", on("br0"), PieceBridge, "no bridge br0"},
		{"the tun device is missing", "tun=usable", "tun=missing", kvm, PieceTun, "modprobe tun"},
		{"the tun device is root's", "tun=usable", "tun=denied", kvm, PieceTun, "chmod 666 /dev/net/tun"},
		{"the KVM device is for others", "kvm=usable", "kvm=denied", kvm, PieceKVM, "--groups kvm caplv"},
		{"the KVM device is for others, and nobody needs it", "kvm=usable", "kvm=denied", on(), "", ""},
		{"a missing KVM device is left to libvirt", "kvm=usable", "kvm=missing", kvm, "", ""},
		{"a second daemon runs machines", "end=", "straydaemon=4711\nend=", kvm, PieceDaemon, "kill 4711"},
		{"the login prints something first", "account=caplv", "Welcome = to the host\naccount=caplv", kvm, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(ready).To(ContainSubstring(row.from))
			err := Probe(t.Context(), answer{stdout: strings.Replace(ready, row.from, row.to, 1)}, row.query)
			if row.wantPiece == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(MissingOf(err)).To(HaveExactElements(HaveField("Name", row.wantPiece)))
			g.Expect(err).To(MatchError(ContainSubstring(row.wantText)))
			g.Expect(err).To(MatchError(HavePrefix("the host is not ready for session mode: " + row.wantPiece + ": ")))
		})
	}
}

func TestAHostThatIsNotSetUpAtAllIsToldEverythingAtOnce(t *testing.T) {
	g := NewWithT(t)
	err := Probe(t.Context(), answer{stdout: "account=caplv\nuid=1001\naclfile=/etc/qemu/bridge.conf\naclstate=missing\ntun=denied\nkvm=denied\nend=yes\n"},
		Query{VirtType: "kvm", Bridges: []string{"br0"}})
	var names []string
	for _, p := range MissingOf(err) {
		g.Expect(p.Problem).NotTo(BeEmpty())
		g.Expect(p.Remedy).NotTo(BeEmpty())
		names = append(names, p.Name)
	}
	g.Expect(names).To(Equal([]string{PieceRuntimeDirectory, PieceLinger, PieceBridgeHelper, PieceBridgeACL, PieceTun, PieceKVM, PieceBridge}))
}

func TestAnAnswerThatIsNoneIsNotTakenForAMissingPiece(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":              "",
		"a greeting":           "This account is not available.\n",
		"an answer cut short":  strings.TrimSuffix(ready, "end=yes\n"),
		"an answer of no user": strings.Replace(ready, "uid=1001\n", "", 1),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := Probe(t.Context(), answer{stdout: text}, Query{})
			g.Expect(err).To(MatchError(And(ContainSubstring("incomplete"), ContainSubstring("status 3: stat: odd"))))
			g.Expect(MissingOf(err)).To(BeNil())
		})
	}
	g := NewWithT(t)
	gone := errors.New("gone")
	g.Expect(Probe(t.Context(), answer{err: gone}, Query{})).To(MatchError(gone))
}

func TestOnlyBridges(t *testing.T) {
	g := NewWithT(t)
	g.Expect((&Error{Missing: []Piece{{Name: PieceBridge}}}).OnlyBridges()).To(BeTrue())
	g.Expect((&Error{Missing: []Piece{{Name: PieceBridge}, {Name: PieceBridgeACL}}}).OnlyBridges()).To(BeFalse())
}

// local runs the script on this machine, in another home.
type local struct{ home string }

func (l local) Exec(ctx context.Context, _ string, stdin io.Reader) (hostconn.Result, error) {
	cmd := exec.CommandContext(ctx, "sh", "-s")
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + l.home}
	err := cmd.Run()
	return hostconn.Result{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: cmd.ProcessState.ExitCode()}, err
}

func TestTheScriptAnswersOnAnyMachine(t *testing.T) {
	g := NewWithT(t)
	result, err := local{home: t.TempDir()}.Exec(t.Context(), command, strings.NewReader(script))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(result.Stderr)).To(BeEmpty())
	f, err := parse(string(result.Stdout))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.tun).To(BeElementOf("usable", "denied", "missing"))
	g.Expect(f.aclFile).To(HavePrefix("/etc/"))
	g.Expect(f.strayDaemon).To(BeEmpty())
}

func FuzzParse(f *testing.F) {
	f.Add(ready)
	f.Add("account=\xff\nuid=1\nacl=\x00\nend=")
	f.Fuzz(func(t *testing.T, text string) {
		found, err := parse(text)
		if err != nil {
			return
		}
		for _, p := range evaluate(found, Query{VirtType: "kvm", Bridges: []string{"br0"}}) {
			if p.Name == "" || p.Problem == "" || p.Remedy == "" || strings.ContainsAny(p.Problem+p.Remedy, "\n\x00") {
				t.Fatalf("%q became the piece %+v", text, p)
			}
		}
	})
}
