// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosthelper

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// installed is where the sudo rule says that the helper is.
const installed = "/usr/libexec/caplv/caplv-hostctl"

// newSudoSandbox is a sandbox with an account "caller", the helper where it is on a host, and the role's own sudo rule, as the
// only rule that there is.
func newSudoSandbox(t *testing.T) *sandbox {
	t.Helper()
	for _, program := range []string{"sudo", "visudo"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("this needs %s: %v", program, err)
		}
	}
	template, err := os.ReadFile("../../roles/host_helper/templates/sudoers.j2")
	if err != nil {
		t.Fatal(err)
	}
	rule := strings.ReplaceAll(string(template), "{{ caplv_user }}", "caller")
	if strings.Contains(rule, "{{") || strings.Contains(rule, "{%") {
		t.Fatalf("the template needs more than its account: %s", rule)
	}
	s := newCallerSandbox(t)
	cmd := s.command("sh", "-euc", `
		umask 022
		mkdir /run/etc /run/libexec
		cp -a /etc/passwd /etc/group /etc/shadow /etc/nsswitch.conf /etc/pam.d /etc/security /etc/login.defs /run/etc/
		echo caller:x:54321:54321::/run/home:/bin/sh >>/run/etc/passwd
		echo caller:x:54321: >>/run/etc/group
		echo 'caller:*:1::::::' >>/run/etc/shadow
		echo "127.0.0.1 localhost $(hostname)" >/run/etc/hosts
		mkdir /run/etc/sudoers.d
		cat >/run/etc/sudoers.d/caplv
		echo '@includedir /etc/sudoers.d' >/run/etc/sudoers
		chmod 440 /run/etc/sudoers /run/etc/sudoers.d/caplv
		# Links lead to where the dynamic linker and the alternatives keep theirs.
		for path in /etc/ld.so.cache /etc/alternatives; do [ ! -e "$path" ] || cp -a "$path" /run/etc/; done
		mkdir -p /run/libexec/caplv
		# On some systems, sudo has its own libraries beside the helper.
		[ ! -e /usr/libexec/sudo ] || cp -a /usr/libexec/sudo /run/libexec/
		install -m 755 "$0" /run/libexec/caplv/caplv-hostctl
		[ -d /usr/libexec ]
		mount -n --bind /run/etc /etc
		mount -n --bind /run/libexec /usr/libexec
		mount -n -t tmpfs -o mode=755 tmpfs /run
		mkdir -m 700 /run/home && chown 54321:54321 /run/home
		visudo -c >&2`, s.helper)
	cmd.Stdin = strings.NewReader(rule)
	if r := s.run(cmd); r.Exit != 0 {
		t.Fatalf("exit status %d: %s", r.Exit, r.Stderr)
	}
	return s
}

// attack runs a shell script as the account, with a request for the helper in its standard input.
func (s *sandbox) attack(script, input string) result {
	s.t.Helper()
	cmd := s.command("setpriv", "--reuid", account, "--regid", account, "--clear-groups", "env", "-i",
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/run/home", "LC_ALL=C", "H="+installed, "sh", "-c", "cd; "+script)
	cmd.Stdin = strings.NewReader(input)
	return s.run(cmd)
}

// world lists everything that an attack with root's rights could have changed. sudo itself keeps state in /run/sudo.
func (s *sandbox) world() string {
	s.t.Helper()
	return s.sh(`find /run /etc /usr/libexec -path /run/home -prune -o -path /run/sudo -prune -o -type d -printf '%y %m %u %p\n' -o \
			-printf '%y %m %u %s %T@ %p %l\n' | sort
		cut -d' ' -f5- /proc/self/mountinfo | sort; cat /run/secret 2>/dev/null || :`)
}

func TestTheAccountMayRunTheHelperThroughSudo(t *testing.T) {
	g := NewWithT(t)
	s := newSudoSandbox(t)
	g.Expect(s.attack(`sudo -n $H`, request("probe"))).To(Equal(result{Stdout: "version=1\ntmpfs=yes\n"}))
	g.Expect(s.attack(`sudo -n $H`, stage(payload, "name=vm", "ephemeral=yes", "owner=caller"))).To(Equal(result{Stdout: "staged=created\n"}))
	g.Expect(s.attack(`cat /run/caplv/vm/ignition.json`, "")).To(HaveField("Stdout", payload))
	g.Expect(s.attack(`sudo -n $H`, request("remove", "name=vm"))).To(Equal(result{Stdout: "removed=yes\n"}))
}

// What is wrong with rules such as "tee /run/caplv/*" and "mount -t tmpfs -o size=* tmpfs /run/caplv/*" gains nothing here.
func TestSudoRefusesEverythingElse(t *testing.T) {
	for _, row := range []struct{ name, script string }{
		{"an argument", `sudo -n $H probe`},
		{"an empty argument", `sudo -n $H ""`},
		{"an argument that is a blank", `sudo -n $H " "`},
		{"an argument that is the rule's own", `sudo -n $H '""'`},
		{"the end of options", `sudo -n $H --`},
		{"a path with ..", `sudo -n /usr/libexec/caplv/../caplv/../../bin/tee /etc/x`},
		{"a program beside the helper by ..", `sudo -n /usr/libexec/caplv/../../bin/id`},
		{"operands that a wildcard would match", `echo x | sudo -n tee /run/caplv/../../etc/sudoers.d/x`},
		{"two operands that a wildcard would match", `echo x | sudo -n tee /run/caplv/a /etc/x`},
		{"chmod through the directory", `sudo -n chmod 0644 /run/caplv/../secret`},
		{"chmod with options among the operands", `sudo -n chmod 0755 /run/caplv/ -R /etc`},
		{"deletion with options among the operands", `sudo -n rm -f /run/caplv/none -r /etc`},
		{"directories with options among the operands", `sudo -n mkdir -p /run/caplv/a -m 0777 /etc/x`},
		{"a directory of the account's own anywhere", `sudo -n install -d -m 0755 /run/caplv/b -o caller /etc/x`},
		{"a mount with options in its size", `sudo -n mount -t tmpfs -o size=1m,uid=0,mode=0777 tmpfs /etc`},
		{"a bind mount", `sudo -n mount -t tmpfs -o size=1m --bind /run/home tmpfs /run/caplv/x`},
		{"an unmount of what others have mounted", `sudo -n umount /run/caplv/../../etc`},
		{"removal of others' directories", `sudo -n rmdir /run/caplv/../x`},
		{"a shell", `sudo -n sh -c id`},
		{"the shell that runs the helper", `sudo -n /bin/bash -p $H`},
		{"a login shell", `sudo -n -i`},
		{"a shell of sudo's", `sudo -n -s`},
		{"an editor for the helper", `SUDO_EDITOR=/bin/true sudo -n -e $H`},
		{"an editor for the rules", `EDITOR=/bin/true sudoedit -n /etc/sudoers.d/caplv`},
		{"another account to run it as", `sudo -n -u nobody $H`},
		{"another UID to run it as", `sudo -n -u '#65534' $H`},
		{"the UID that sudo once took for root", `sudo -n -u '#-1' $H`},
		{"another group to run it with", `sudo -n -g root $H`},
		{"another root directory", `sudo -n -R /run/home $H`},
		{"another working directory", `sudo -n -D /etc $H`},
		{"a variable for sudo to pass on", `sudo -n LD_PRELOAD=/run/home/x.so $H`},
		{"a variable of the shell for sudo to pass on", `sudo -n BASH_ENV=/run/home/x $H`},
		{"the whole environment", `BASH_ENV=/run/home/x sudo -n -E $H`},
		{"one variable of the environment", `BASH_ENV=/run/home/x sudo -n --preserve-env=BASH_ENV $H`},
		{"a link to the helper", `ln -s $H link; sudo -n ./link`},
		{"a link of the helper's name", `mkdir d; ln -s /bin/sh d/caplv-hostctl; PATH=$PWD/d:$PATH sudo -n caplv-hostctl`},
		{"a copy of the helper", `cp $H caplv-hostctl; sudo -n ./caplv-hostctl`},
		{"the helper's name with a newline and a command", `sudo -n "$H
/bin/sh"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			s := newSudoSandbox(t)
			s.sh("mkdir -m 711 /run/caplv; mkdir /run/x; umask 077; echo secret >/run/secret")
			before := s.world()
			r := s.attack(row.script, request("probe"))
			g.Expect(r.Exit).NotTo(BeZero(), "%+v", r)
			g.Expect(r.Stdout).To(BeEmpty())
			g.Expect(r.Stderr).To(MatchRegexp(`^(sudo|sudoedit): `), "it was not sudo that refused")
			g.Expect(s.world()).To(Equal(before))
		})
	}
}

func TestWhatTheAccountsEnvironmentSaysIsOfNoConsequence(t *testing.T) {
	const trap = `printf '#!/bin/sh\n/bin/touch /etc/owned\n' >trap; chmod 755 trap; for p in stat mkdir bash env mount cat find; do cp trap "$p"; done; `
	for _, row := range []struct{ name, environment string }{
		{"a start-up file for bash", `BASH_ENV=$PWD/trap ENV=$PWD/trap`},
		{"programs of the account's", `PATH=$PWD:$PATH`},
		{"a library", `LD_PRELOAD=$PWD/trap LD_LIBRARY_PATH=$PWD LD_AUDIT=$PWD/trap`},
		{"a field separator", `IFS=/`},
		{"options for bash", `SHELLOPTS=xtrace BASHOPTS=extdebug PS4='$(touch /etc/owned)'`},
		{"a function in place of a program", `env 'BASH_FUNC_stat%%=() { touch /etc/owned; }' 'BASH_FUNC_printf%%=() { touch /etc/owned; }'`},
		{"a directory to search", `CDPATH=$PWD GLOBIGNORE='*' HOME=$PWD TMPDIR=$PWD`},
		{"a caller who is somebody else", `SUDO_UID=0 SUDO_GID=0 SUDO_USER=root`},
		{"messages in another language", `LC_ALL=tlh LANGUAGE=tlh NLSPATH=$PWD/trap LOCPATH=$PWD`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			s := newSudoSandbox(t)
			before := s.sh("find /etc /usr/libexec -type f -printf '%y %m %u %s %p\n' | sort")
			r := s.attack(trap+row.environment+` sudo -n $H`, stage(payload, "name=vm", "ephemeral=no", "owner=caller"))
			// bash may complain of a language that it does not know.
			g.Expect(r).To(And(HaveField("Stdout", "staged=created\n"), HaveField("Exit", 0)))
			g.Expect(s.owners()).To(Equal("d 700 54321:54321 vm\nf 600 54321:54321 vm/ignition.json\n"))
			g.Expect(s.sh("find /etc /usr/libexec -type f -printf '%y %m %u %s %p\n' | sort")).To(Equal(before))
		})
	}
}

func TestTheHelperRefusesWhatARuleWithWildcardsWouldHaveAllowed(t *testing.T) {
	bad := func(keys ...string) string { return request("stage", append([]string{"ephemeral=yes"}, keys...)...) }
	for _, row := range []struct {
		name, prepare, request, code string
	}{
		{"a name with ..", "", bad("name=../etc"), "bad-request"},
		{"a name that is another directory", "", bad("name=.."), "bad-value"},
		{"a name that is two operands", "", bad("name=a /etc"), "bad-request"},
		{"a name that is an option", "", bad("name=-R"), "bad-value"},
		{"a name with a newline and a second request", "", request("remove", "name=a\nname=b"), "bad-request"},
		{"a size with options of mount", "", bad("name=a", "size=1m,uid=0,mode=0777"), "bad-request"},
		{"a size with a bind mount", "", bad("name=a", "size=1m --bind /run/home"), "bad-request"},
		{"a file with ..", "", request("stage", "name=a", "ephemeral=no", "file=../../etc/x", "bytes=0", "sha256="+strings.Repeat("0", 64)), "bad-request"},
		{"a link of the directory's name", "ln -s /etc /run/caplv/vm", bad("name=vm"), "not-ours"},
		{"removal through a link", "ln -s /etc /run/caplv/vm", request("remove", "name=vm"), "not-ours"},
		{"an unmount of what others have mounted", "mkdir /run/caplv/vm; mount -n -t tmpfs other /run/caplv/vm", request("remove", "name=vm"), "not-ours"},
		{"removal of another account's directory", "mkdir /run/caplv/vm; chown 54322 /run/caplv/vm", request("remove", "name=vm"), "not-ours"},
		{"taking over another account's directory", "mkdir /run/caplv/vm; chown 54322 /run/caplv/vm", bad("name=vm", "owner=caller"), "not-ours"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			s := newSudoSandbox(t)
			s.sh("mkdir -m 711 /run/caplv; " + row.prepare)
			before := s.world()
			expectRefusal(g, s.attack(`exec sudo -n $H`, row.request), row.code)
			g.Expect(s.world()).To(Equal(before))
		})
	}
}

func TestTheAccountCannotReplaceWhatSudoTrusts(t *testing.T) {
	s := newSudoSandbox(t)
	s.sh("mkdir -m 711 /run/caplv /run/caplv/vm")
	for _, script := range []string{
		`echo x >>$H`, `mv $H $H.old`, `rm -f $H; test ! -e $H`, `ln -s /bin/sh /usr/libexec/caplv/x`, `mv /usr/libexec/caplv /usr/libexec/x`,
		`echo x >/etc/sudoers.d/x`, `cat /etc/sudoers.d/caplv`, `ln -s /etc /run/caplv/x`, `mv /run/caplv /run/x`, `ls /run/caplv`, `rmdir /run/caplv/vm`,
	} {
		t.Run(script, func(t *testing.T) {
			g := NewWithT(t)
			before := s.world()
			g.Expect(s.attack(script, "")).NotTo(HaveField("Exit", 0))
			g.Expect(s.world()).To(Equal(before))
		})
	}
}
