# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""What an account lacks on a host for libvirt's session mode.

It decides as operator/session/evaluate.go does, from the output of the same script, facts.sh, and in the same words. A file of
cases (operator/session/testdata/contract.json) holds both to that.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import re

# SINGLE are the keys that facts.sh prints once. What it does not print is empty.
SINGLE = (
    "account", "uid", "runtime", "linger", "helper", "helpermode", "helperexecutable", "helpercapabilities", "aclfile", "aclstate",
    "tun", "kvm", "straydaemon",
)
# PIECES are what session mode needs, in the order in which it is best mended.
PIECES = ("runtime directory", "lingering", "bridge helper", "bridge ACL", "/dev/net/tun", "/dev/kvm", "session daemon", "bridge")
SETUID = 0o4000
# EVERY is QEMU's word for all bridges.
EVERY = "all"
# getcap's output, old and new, for a capability that is effective as soon as the program runs.
NET_ADMIN = re.compile(r"cap_net_admin\S*[+=]\w*e")


class IncompleteError(ValueError):
    """The text is not a whole answer of facts.sh."""


def parse(text):
    """Return the facts in the output of facts.sh: a str for each of SINGLE, lists of str for acl and bridge.

    What an account's login prints besides is skipped. Raises IncompleteError.
    """
    facts = dict((key, "") for key in SINGLE)
    facts.update(acl=[], bridge=[])
    ended = False
    for line in text.split("\n"):
        key, sign, value = line.partition("=")
        if not sign:
            continue
        value = "".join(c if c.isprintable() else " " for c in value.strip())
        if key in SINGLE:
            facts[key] = value
        elif key in ("acl", "bridge"):
            facts[key].append(value)
        elif key == "end":
            ended = True
    if not (ended and facts["account"] and facts["uid"]):
        raise IncompleteError("the answer is incomplete")
    return facts


def missing(facts, virt_type, bridges):
    """Return what is missing, a list of dicts of str: piece (of PIECES), problem and remedy.

    Without bridges, it is enough that the account may use one at all.
    """
    answers = (
        _runtime(facts), _linger(facts), _helper(facts), _acl(facts, bridges), _tun(facts), _kvm(facts, virt_type), _daemon(facts),
        _bridges(facts, bridges),
    )
    return [{"piece": name, "problem": found[0], "remedy": found[1]} for name, found in zip(PIECES, answers) if found]


def setuid(facts):
    """Say whether the bridge helper gets the rights that it needs, whoever runs it."""
    owner, _sign, mode = facts["helpermode"].partition(" ")
    try:
        bits = int(mode, 8)
    except ValueError:
        bits = 0
    return (owner == "0" and bool(bits & SETUID)) or bool(NET_ADMIN.search(facts["helpercapabilities"]))


def rules(lines):
    """Read the lines of an ACL as QEMU does.

    Returns the bridges that are allowed, those that are denied, and the first line that QEMU would refuse with the whole file.
    """
    allow, deny = [], []
    for line in lines:
        verb, _sign, bridge = line.partition(" ")
        bridge = bridge.strip()
        if not bridge or verb not in ("allow", "deny"):
            return [], [], line
        (allow if verb == "allow" else deny).append(bridge)
    return allow, deny, ""


def covered(name, bridges):
    """Say whether rules of one kind are about a bridge."""
    return name in bridges or EVERY in bridges


def _enable_linger(facts):
    return "run as root: loginctl enable-linger " + facts["account"]


def _runtime(facts):
    path = "/run/user/" + facts["uid"]
    owner = facts["runtime"].partition(" ")[0]
    if not owner:
        return path + " does not exist, so that the session daemon has no place for its sockets", _enable_linger(facts)
    if owner != facts["uid"]:
        return ("%s belongs to UID %s and not to account %s" % (path, owner, facts["account"]),
                "run as root: chown %s %s" % (facts["account"], path))
    return None


def _linger(facts):
    if facts["linger"] == "yes":
        return None
    return ("it is off for account %s, whose machines would end with its last SSH connection" % facts["account"], _enable_linger(facts))


def _helper(facts):
    path = facts["helper"]
    if not path:
        return ("there is no qemu-bridge-helper, without which an account cannot attach to a bridge",
                "install QEMU's package that holds it (qemu-system-common, qemu-kvm-common or qemu-common), "
                "or name it as bridge_helper in the account's ~/.config/libvirt/qemu.conf")
    if not facts["helperexecutable"]:
        return "account %s may not execute %s" % (facts["account"], path), "run as root: chmod 4755 " + path
    if setuid(facts):
        return None
    return ("%s is neither setuid root nor has it the capability cap_net_admin" % path,
            "run as root: chown root %s && chmod u+s %s" % (path, path))


def _acl(facts, bridges):
    path, account = facts["aclfile"], facts["account"]
    if facts["aclstate"] == "missing":
        return path + " does not exist, or its directory is closed to account " + account, _allow(facts, bridges)
    if facts["aclstate"] != "readable":
        return ("account %s cannot read %s, which the bridge helper reads with its rights" % (account, path), "run as root: chmod 644 " + path)
    allow, deny, odd = rules(facts["acl"])
    if odd:
        return ('%s has a line that the bridge helper refuses: "%s"' % (path, odd.replace("\\", "\\\\").replace('"', '\\"')),
                "correct it to: allow BRIDGE, deny BRIDGE or include FILE")
    if not bridges:
        if [b for b in allow if not covered(b, deny)]:
            return None
        return path + " allows no bridge", _allow(facts, [])
    denied = [b for b in bridges if covered(b, deny)]
    if denied:
        return "%s denies bridge %s" % (path, ", ".join(denied)), "remove the deny line, which no allow line overrules"
    refused = [b for b in bridges if not covered(b, allow)]
    if refused:
        return "%s does not allow bridge %s" % (path, ", ".join(refused)), _allow(facts, refused)
    return None


def _allow(facts, bridges):
    lines = " and a line ".join('"allow %s"' % b for b in bridges or ["BRIDGE"])
    return "add a line %s to %s, readable for account %s" % (lines, facts["aclfile"], facts["account"])


def _tun(facts):
    if facts["tun"] == "usable":
        return None
    if facts["tun"] == "missing":
        return "the device does not exist", "run as root: modprobe tun"
    return ("account %s may not read and write it, and the bridge helper opens it with the account's rights" % facts["account"],
            "run as root: chmod 666 /dev/net/tun, and make it last with a udev rule")


def _kvm(facts, virt_type):
    # A host without the device is left to libvirt, which then does not offer kvm.
    if virt_type != "kvm" or facts["kvm"] != "denied":
        return None
    return ("account %s may not read and write it" % facts["account"],
            "run as root: usermod --append --groups kvm %s, and end the account's processes" % facts["account"])


def _daemon(facts):
    pid = facts["straydaemon"]
    if not pid:
        return None
    return ("process %s is a second one of account %s, started without XDG_RUNTIME_DIR, and runs machines; "
            "each would start the other's machines again" % (pid, facts["account"]),
            "shut its machines down with: env -u XDG_RUNTIME_DIR virsh -c qemu:///session; then end it: kill " + pid)


def _bridges(facts, bridges):
    absent = [b for b in bridges if b not in facts["bridge"]]
    if not absent:
        return None
    return "the host has no bridge " + ", ".join(absent), "create it there, or delete the machine and name another bridge"
