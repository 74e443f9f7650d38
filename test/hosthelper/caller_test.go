// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosthelper

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// account is the UID and GID of nobody that exists, and other is another one.
const (
	account = "54321"
	other   = "54322"
)

// newCallerSandbox is a sandbox in which two accounts can be told apart.
func newCallerSandbox(t *testing.T) *sandbox {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a user namespace has no second user to own a file")
	}
	return newSandbox(t)
}

// sendAs gives a request to the helper as sudo does for an account.
func (s *sandbox) sendAs(uid, request string) result {
	s.t.Helper()
	cmd := s.command("env", "SUDO_UID="+uid, "SUDO_GID="+uid, s.helper)
	cmd.Stdin = strings.NewReader(request)
	return s.run(cmd)
}

// as is a shell script that an account runs.
func (s *sandbox) as(uid, script string) *exec.Cmd {
	return s.command("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "sh", "-uc", script)
}

// owners lists what is in /run/caplv with mode and owner.
func (s *sandbox) owners() string {
	s.t.Helper()
	return s.sh(`find /run/caplv -mindepth 1 -printf '%y %m %U:%G %P\n' | sort`)
}

func stageFor(keys ...string) string {
	return stage(payload, append([]string{"name=vm", "owner=caller"}, keys...)...)
}

func TestStageForTheCaller(t *testing.T) {
	for _, row := range []struct {
		name      string
		ephemeral string
		mounts    string
	}{
		{"a directory", "ephemeral=no", "0\n"},
		{"a tmpfs", "ephemeral=yes", "1\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			s := newCallerSandbox(t)
			g.Expect(s.sendAs(account, stageFor(row.ephemeral))).To(Equal(result{Stdout: "staged=created\n"}))
			g.Expect(s.owners()).To(Equal("d 700 54321:54321 vm\nf 600 54321:54321 vm/ignition.json\n"))
			g.Expect(s.sh("cat /run/caplv/vm/ignition.json")).To(Equal(payload))
			g.Expect(s.sh("grep -c ' /run/caplv/vm ' /proc/self/mountinfo || :")).To(Equal(row.mounts))
			g.Expect(s.sendAs(account, stageFor(row.ephemeral))).To(Equal(result{Stdout: "staged=unchanged\n"}))

			before := s.owners()
			expectRefusal(g, s.sendAs(other, stageFor(row.ephemeral)), "not-ours")
			expectRefusal(g, s.sendAs(account, stage(payload, "name=vm", row.ephemeral)), "not-ours")
			expectRefusal(g, s.sendAs(other, request("remove", "name=vm")), "not-ours")
			expectRefusal(g, s.send(request("remove", "name=vm")), "not-ours")
			g.Expect(s.owners()).To(Equal(before))

			// What QEMU and its log daemon would add.
			g.Expect(s.as(account, "cd /run/caplv/vm && touch serial.log serial.log.0 vm-root.qcow2 .partial.abcdef").Run()).To(Succeed())
			g.Expect(s.sendAs(account, request("remove", "name=vm"))).To(Equal(result{Stdout: "removed=yes\n"}))
			g.Expect(s.tree()).To(Equal("d 711 caplv \n"))
			g.Expect(s.sendAs(account, request("remove", "name=vm"))).To(Equal(result{Stdout: "removed=absent\n"}))
		})
	}
}

func TestTheCallerMustBeAnAccount(t *testing.T) {
	s := newCallerSandbox(t)
	for _, uid := range []string{"", "0", "00", "-1", "1x", "a[$(touch /run/x)]", "4294967295", "99999999999", "1 2"} {
		t.Run("UID '"+uid+"'", func(t *testing.T) {
			g := NewWithT(t)
			expectRefusal(g, s.sendAs(uid, stageFor("ephemeral=no")), "bad-value")
			g.Expect(s.tree()).To(BeEmpty())
		})
	}
	NewWithT(t).Expect(s.send(stageFor("ephemeral=no"))).To(HaveField("Exit", 2), "without sudo there is no caller")
}

func TestWhatAKilledRequestForTheCallerLeftIsTakenOver(t *testing.T) {
	for _, row := range []struct {
		name, prepare, ephemeral string
	}{
		{"a directory that was not given away", "mkdir -m 711 /run/caplv /run/caplv/vm", "ephemeral=no"},
		{"a directory without its tmpfs", "mkdir -m 711 /run/caplv /run/caplv/vm", "ephemeral=yes"},
		{"a directory of the account that is to be on tmpfs now", "mkdir -m 711 /run/caplv /run/caplv/vm; chown 54321 /run/caplv/vm", "ephemeral=yes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			s := newCallerSandbox(t)
			s.sh(row.prepare)
			g.Expect(s.sendAs(account, stageFor(row.ephemeral))).To(Equal(result{Stdout: "staged=created\n"}))
			g.Expect(s.owners()).To(Equal("d 700 54321:54321 vm\nf 600 54321:54321 vm/ignition.json\n"))
			g.Expect(s.sendAs(account, request("remove", "name=vm"))).To(Equal(result{Stdout: "removed=yes\n"}))
			g.Expect(s.tree()).To(Equal("d 711 caplv \n"))
		})
	}
	t.Run("but not a directory of root with files", func(t *testing.T) {
		g := NewWithT(t)
		s := newCallerSandbox(t)
		g.Expect(s.send(stage(payload, "name=vm", "ephemeral=no"))).To(HaveField("Exit", 0))
		before := s.owners()
		expectRefusal(g, s.sendAs(account, stageFor("ephemeral=no")), "not-ours")
		expectRefusal(g, s.sendAs(account, stageFor("ephemeral=yes")), "not-ours")
		g.Expect(s.owners()).To(Equal(before))
	})
}

// secret is a file that only root may read or write, and what it must look like afterwards.
const (
	makeSecret  = `umask 077; echo secret >/run/secret; mkdir -p /run/private; echo kept >/run/private/kept`
	stateSecret = `cat /run/secret /run/private/kept; stat -c '%U %a' /run/secret /run/private; ls -A /run /run/private`
)

func TestAnAccountsTrapsAreSprungWithItsOwnRights(t *testing.T) {
	for _, row := range []struct {
		name, trap            string
		wantStage, wantRemove string
	}{
		{"a link to a file of root in place of the file", "ln -sfT /run/secret ignition.json", "not-ours", ""},
		{"a link to nothing in place of the file", "ln -sfT /run/new ignition.json", "not-ours", ""},
		{"a link to a directory of root beside the file", "ln -s /run/private x", "", ""},
		{"a pipe in place of the file", "rm ignition.json; mkfifo ignition.json", "not-ours", ""},
		{"a directory in place of the file", "rm ignition.json; mkdir ignition.json", "not-ours", "not-ours"},
		{"a directory beside the file", "mkdir -p a/b; ln -s /run/private a/c", "", "not-ours"},
		{"a directory that nobody can write to", "rm ignition.json; chmod 500 .", "io", ""},
		{"a directory that everybody can write to", "chmod 777 .", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			s := newCallerSandbox(t)
			s.sh(makeSecret)
			before := s.sh("mkdir -m 711 /run/caplv; " + stateSecret)
			g.Expect(s.sendAs(account, stageFor("ephemeral=no"))).To(HaveField("Exit", 0))
			g.Expect(s.as(account, "cd /run/caplv/vm && "+row.trap).Run()).To(Succeed())
			expect := func(r result, code string) {
				if code == "" {
					g.Expect(r).To(HaveField("Exit", 0))
				} else {
					expectRefusal(g, r, code)
				}
				g.Expect(s.sh(stateSecret)).To(Equal(before))
			}
			expect(s.sendAs(account, stageFor("ephemeral=no")), row.wantStage)
			expect(s.sendAs(account, request("remove", "name=vm")), row.wantRemove)
		})
	}
}

func TestAnAccountThatSwapsFilesDuringRequestsGainsNothing(t *testing.T) {
	g := NewWithT(t)
	s := newCallerSandbox(t)
	s.sh(makeSecret)
	before := s.sh("mkdir -m 711 /run/caplv; " + stateSecret)
	stop := s.as(account, `
		while :; do
			ln -sfT /run/secret /run/caplv/vm/ignition.json
			ln -sfT /run/private /run/caplv/vm/x
			for f in /run/caplv/vm/.partial.*; do ln -sfT /run/secret "$f"; done
			rm -f /run/caplv/vm/ignition.json
			chmod 777 /run/caplv/vm
		done 2>/dev/null`)
	g.Expect(stop.Start()).To(Succeed())
	t.Cleanup(func() {
		_ = stop.Process.Kill()
		_ = stop.Wait()
	})
	won := 0
	for range 40 {
		if r := s.sendAs(account, stageFor("ephemeral=no")); r.Exit == 0 {
			won++
		}
		s.sendAs(account, request("remove", "name=vm"))
		g.Expect(strings.ReplaceAll(s.sh(stateSecret), "ignition.json\n", "")).To(Equal(before))
	}
	g.Expect(won).To(BeNumerically(">", 0), "no request was early enough to be of any interest")
}

func TestRemoveDeletesTheSessionsLogsWithTheAccountsRights(t *testing.T) {
	g := NewWithT(t)
	s := newCallerSandbox(t)
	s.sh(`cp /etc/passwd /run/passwd; echo caller:x:54321:54321::/run/home:/bin/sh >>/run/passwd
		chmod 644 /run/passwd; mount -n --bind /run/passwd /etc/passwd
		mkdir -p /run/home/.cache/libvirt/qemu/log /run/private; touch /run/private/vm.log
		cd /run/home/.cache/libvirt/qemu/log; touch vm.log vm.log.0 vm2.log; chown -R 54321:54321 /run/home`)
	g.Expect(s.sendAs(account, request("remove", "name=vm"))).To(Equal(result{Stdout: "removed=absent\n"}))
	g.Expect(s.sh("ls /run/home/.cache/libvirt/qemu/log")).To(Equal("vm2.log\n"))

	g.Expect(s.as(account, "cd /run/home/.cache/libvirt/qemu && rm -r log && ln -s /run/private log").Run()).To(Succeed())
	g.Expect(s.sendAs(account, request("remove", "name=vm"))).To(Equal(result{Stdout: "removed=absent\n"}))
	g.Expect(s.sh("ls /run/private")).To(Equal("vm.log\n"))
}

func TestRemoveOfACallersTmpfsWaitsAMomentForTheLogToBeClosed(t *testing.T) {
	g := NewWithT(t)
	s := newCallerSandbox(t)
	g.Expect(s.sendAs(account, stageFor("ephemeral=yes"))).To(HaveField("Exit", 0))
	for _, row := range []struct {
		seconds string
		want    result
	}{
		{"30", result{Stderr: "caplv-hostctl: busy: the tmpfs on /run/caplv/vm is in use\n", Exit: 1}},
		{"0.4", result{Stdout: "removed=yes\n"}},
	} {
		holder := s.as(account, "exec 3>>/run/caplv/vm/serial.log && echo ready && exec sleep "+row.seconds)
		stdout, err := holder.StdoutPipe()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(holder.Start()).To(Succeed())
		g.Expect(bufio.NewReader(stdout).ReadString('\n')).To(Equal("ready\n"))
		g.Expect(s.sendAs(account, request("remove", "name=vm"))).To(Equal(row.want))
		_ = holder.Process.Kill()
		_ = holder.Wait()
	}
}
