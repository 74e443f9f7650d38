// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// facts are what the script has found. What it did not find is empty.
type facts struct {
	account, uid string
	// runtime and helperMode are "UID MODE", the mode in octal.
	runtime, linger                string
	helper, helperMode             string
	helperExecutable, capabilities string
	// aclFile is what the helper reads; aclState is readable, unreadable or missing; acl are its lines.
	aclFile, aclState string
	acl               []string
	// tun and kvm are usable, denied or missing.
	tun, kvm string
	// strayDaemon is the PID of a second session daemon that runs machines.
	strayDaemon string
	bridges     []string
}

var errIncomplete = errors.New("the answer is incomplete")

// maxValue bounds what is kept of one value, in bytes: values get into conditions.
const maxValue = 200

// parse reads the script's output. What an account's login prints besides is skipped.
func parse(text string) (facts, error) {
	var f facts
	single := map[string]*string{
		"account": &f.account, "uid": &f.uid, "runtime": &f.runtime, "linger": &f.linger,
		"helper": &f.helper, "helpermode": &f.helperMode, "helperexecutable": &f.helperExecutable, "helpercapabilities": &f.capabilities,
		"aclfile": &f.aclFile, "aclstate": &f.aclState, "tun": &f.tun, "kvm": &f.kvm, "straydaemon": &f.strayDaemon,
	}
	ended := false
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !ok {
			continue
		}
		value = printable(value)
		switch into := single[key]; {
		case into != nil:
			*into = value
		case key == "acl":
			f.acl = append(f.acl, value)
		case key == "bridge":
			f.bridges = append(f.bridges, value)
		case key == "end":
			ended = true
		}
	}
	if !ended || f.account == "" || f.uid == "" {
		return facts{}, errIncomplete
	}
	return f, nil
}

// printable makes a text of the host fit for a condition.
func printable(text string) string {
	text = strings.ToValidUTF8(strings.TrimSpace(text), "?")
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if len(text) > maxValue {
		text = strings.ToValidUTF8(text[:maxValue], "") + "..."
	}
	return text
}

// evaluate lists what is missing, in the order in which it is best mended.
func evaluate(f facts, q Query) []Piece {
	var missing []Piece
	for _, check := range []func(facts, Query) *Piece{
		checkRuntime, checkLinger, checkHelper, checkACL, checkTun, checkKVM, checkDaemon, checkBridges,
	} {
		if p := check(f, q); p != nil {
			missing = append(missing, *p)
		}
	}
	return missing
}

// enableLinger makes systemd keep the account's runtime directory and daemons without a login.
func enableLinger(f facts) string { return "run as root: loginctl enable-linger " + f.account }

func checkRuntime(f facts, _ Query) *Piece {
	path := "/run/user/" + f.uid
	owner, _, _ := strings.Cut(f.runtime, " ")
	switch owner {
	case "":
		return &Piece{PieceRuntimeDirectory, path + " does not exist, so that the session daemon has no place for its sockets", enableLinger(f)}
	case f.uid:
		return nil
	}
	return &Piece{PieceRuntimeDirectory, fmt.Sprintf("%s belongs to UID %s and not to account %s", path, owner, f.account),
		fmt.Sprintf("run as root: chown %s %s", f.account, path)}
}

func checkLinger(f facts, _ Query) *Piece {
	if f.linger == "yes" {
		return nil
	}
	return &Piece{PieceLinger, fmt.Sprintf("it is off for account %s, whose machines would end with its last SSH connection", f.account), enableLinger(f)}
}

// netAdmin matches getcap's output, old and new, for a capability that is effective as soon as the program runs.
var netAdmin = regexp.MustCompile(`cap_net_admin\S*[+=]\w*e`)

func checkHelper(f facts, _ Query) *Piece {
	if f.helper == "" {
		return &Piece{PieceBridgeHelper, "there is no qemu-bridge-helper, without which an account cannot attach to a bridge",
			"install QEMU's package that holds it (qemu-system-common, qemu-kvm-common or qemu-common), or name it as bridge_helper in the account's ~/.config/libvirt/qemu.conf"}
	}
	if f.helperExecutable == "" {
		return &Piece{PieceBridgeHelper, fmt.Sprintf("account %s may not execute %s", f.account, f.helper), "run as root: chmod 4755 " + f.helper}
	}
	owner, mode, _ := strings.Cut(f.helperMode, " ")
	bits, err := strconv.ParseUint(mode, 8, 32)
	const setuid = 0o4000
	if err == nil && owner == "0" && bits&setuid != 0 || netAdmin.MatchString(f.capabilities) {
		return nil
	}
	return &Piece{PieceBridgeHelper, fmt.Sprintf("%s is neither setuid root nor has it the capability cap_net_admin", f.helper),
		fmt.Sprintf("run as root: chown root %s && chmod u+s %s", f.helper, f.helper)}
}

func checkACL(f facts, q Query) *Piece {
	switch f.aclState {
	case "missing":
		return &Piece{PieceBridgeACL, f.aclFile + " does not exist, or its directory is closed to account " + f.account, allow(f, wantedBridges(q))}
	case "readable":
	default:
		return &Piece{PieceBridgeACL, fmt.Sprintf("account %s cannot read %s, which the bridge helper reads with its rights", f.account, f.aclFile),
			"run as root: chmod 644 " + f.aclFile}
	}
	rules, odd := parseACL(f.acl)
	if odd != "" {
		return &Piece{PieceBridgeACL, fmt.Sprintf("%s has a line that the bridge helper refuses: %q", f.aclFile, odd),
			"correct it to: allow BRIDGE, deny BRIDGE or include FILE"}
	}
	if len(q.Bridges) == 0 {
		if rules.allowsAny() {
			return nil
		}
		return &Piece{PieceBridgeACL, f.aclFile + " allows no bridge", allow(f, wantedBridges(q))}
	}
	var refused, denied []string
	for _, bridge := range q.Bridges {
		switch {
		case rules.denied(bridge):
			denied = append(denied, bridge)
		case !rules.allowed(bridge):
			refused = append(refused, bridge)
		}
	}
	switch {
	case len(denied) > 0:
		return &Piece{PieceBridgeACL, fmt.Sprintf("%s denies bridge %s", f.aclFile, strings.Join(denied, ", ")), "remove the deny line, which no allow line overrules"}
	case len(refused) > 0:
		return &Piece{PieceBridgeACL, fmt.Sprintf("%s does not allow bridge %s", f.aclFile, strings.Join(refused, ", ")), allow(f, refused)}
	}
	return nil
}

func wantedBridges(q Query) []string {
	if len(q.Bridges) == 0 {
		return []string{"BRIDGE"}
	}
	return q.Bridges
}

func allow(f facts, bridges []string) string {
	lines := make([]string, len(bridges))
	for i, b := range bridges {
		lines[i] = strconv.Quote("allow " + b)
	}
	return fmt.Sprintf("add a line %s to %s, readable for account %s", strings.Join(lines, " and a line "), f.aclFile, f.account)
}

// rules are those of the bridge helper: a bridge may be used when some line allows and no line denies it.
type rules struct{ allow, deny []string }

const everyBridge = "all"

// parseACL reads the lines of an ACL as QEMU does. It returns the first that QEMU would refuse, with the whole file.
func parseACL(lines []string) (r rules, odd string) {
	for _, line := range lines {
		verb, bridge, _ := strings.Cut(line, " ")
		switch bridge = strings.TrimSpace(bridge); {
		case bridge == "":
			return rules{}, line
		case verb == "allow":
			r.allow = append(r.allow, bridge)
		case verb == "deny":
			r.deny = append(r.deny, bridge)
		default:
			return rules{}, line
		}
	}
	return r, ""
}

func (r rules) allowed(bridge string) bool {
	return slices.Contains(r.allow, bridge) || slices.Contains(r.allow, everyBridge)
}

func (r rules) denied(bridge string) bool {
	return slices.Contains(r.deny, bridge) || slices.Contains(r.deny, everyBridge)
}

// allowsAny says whether there is any bridge that may be used.
func (r rules) allowsAny() bool {
	return slices.ContainsFunc(r.allow, func(b string) bool { return !r.denied(b) })
}

func checkTun(f facts, _ Query) *Piece {
	switch f.tun {
	case "usable":
		return nil
	case "missing":
		return &Piece{PieceTun, "the device does not exist", "run as root: modprobe tun"}
	}
	return &Piece{PieceTun, fmt.Sprintf("account %s may not read and write it, and the bridge helper opens it with the account's rights", f.account),
		"run as root: chmod 666 /dev/net/tun, and make it last with a udev rule"}
}

// checkKVM leaves a host without the device to libvirt, which then does not offer kvm.
func checkKVM(f facts, q Query) *Piece {
	if q.VirtType != "kvm" || f.kvm != "denied" {
		return nil
	}
	return &Piece{PieceKVM, fmt.Sprintf("account %s may not read and write it", f.account),
		fmt.Sprintf("run as root: usermod --append --groups kvm %s, and end the account's processes", f.account)}
}

func checkDaemon(f facts, _ Query) *Piece {
	if f.strayDaemon == "" {
		return nil
	}
	return &Piece{PieceDaemon, fmt.Sprintf("process %s is a second one of account %s, started without XDG_RUNTIME_DIR, and runs machines; each would start the other's machines again",
		f.strayDaemon, f.account), "shut its machines down with: env -u XDG_RUNTIME_DIR virsh -c qemu:///session; then end it: kill " + f.strayDaemon}
}

func checkBridges(f facts, q Query) *Piece {
	var absent []string
	for _, b := range q.Bridges {
		if !slices.Contains(f.bridges, b) {
			absent = append(absent, b)
		}
	}
	if len(absent) == 0 {
		return nil
	}
	return &Piece{PieceBridge, "the host has no bridge " + strings.Join(absent, ", "), "create it there, or delete the machine and name another bridge"}
}
