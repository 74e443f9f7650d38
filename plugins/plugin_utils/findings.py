# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""What verify_host makes of what a host has said.

A finding is a dict: check (str, what was looked at), ok (bool), found (str) and remedy (str, empty when nothing is to be mended).
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import json
import re

from ansible_collections.caplv.caplv.plugins.plugin_utils import session

# OpenSSH's default, and above what the operator uses of a connection.
MIN_SESSIONS = 10
ONBOARD = "run the playbook caplv.caplv.onboard_host"
# KEY finds a public key in a line of authorized_keys.
KEY = re.compile(r"(?:^|\s)((?:ssh|ecdsa|sk)-\S+\s+[A-Za-z0-9+/=]+)")


def lines_of(text):
    """Return lines KEY=VALUE as a dict of lists of str. A text without end=yes was cut short, and is ValueError."""
    found = {}
    for line in text.split("\n"):
        key, sign, value = line.partition("=")
        if sign:
            found.setdefault(key, []).append("".join(c if c.isprintable() else " " for c in value.strip()))
    if found.get("end") != ["yes"]:
        raise ValueError("the answer is incomplete: %r" % text[:200])
    return found


def first(found, key):
    return found.get(key, [""])[0]


def evaluate(answers, account, mode, virt_type, bridges, pools, keys, version):
    """Return the findings about a host.

    answers has the texts of host.sh (host), facts.sh (session) and account.sh (libvirt), and rc and stderr of login.sh (login), or {}.
    pools are dicts of name and path; keys the public keys that must be authorized; version the one of this collection.
    """
    host = lines_of(answers["host"])
    findings = [_finding("account", first(host, "uid"), "UID %s" % first(host, "uid"), "there is no account %s" % account, ONBOARD)]
    if not first(host, "uid"):
        return findings
    findings += _keys(host, answers["login"], account, keys)
    findings.append(_sshd(host))
    if mode == "session":
        findings += _session(answers["session"], virt_type, bridges)
    else:
        absent = [b for b in bridges if b not in host.get("bridge", [])]
        findings.append(_finding("bridge", not absent, ", ".join(bridges) or "none asked for", "the host has no bridge " + ", ".join(absent),
                                 "create it there, or leave it out of caplv_bridges"))
    findings += _libvirt(answers["libvirt"], account, mode, virt_type, pools)
    firmware = host.get("firmware", [])
    findings.append(_finding("firmware", firmware, "%d descriptors" % len(firmware), "no descriptor of UEFI firmware in /usr/share/qemu/firmware",
                             "install OVMF: ovmf (Debian, Ubuntu) or edk2-ovmf (RHEL, Fedora)"))
    findings.append(_record(first(host, "record"), account, mode, version))
    findings.append(_capacity(host))
    return findings


def _finding(check, ok, found, problem, remedy):
    return {"check": check, "ok": bool(ok), "found": found if ok else problem, "remedy": "" if ok else remedy}


def _keys(host, login, account, keys):
    authorized = [m.group(1).split() for m in map(KEY.search, host.get("authorizedkey", [])) if m]
    wanted = [m.group(1).split() for m in map(KEY.search, keys) if m]
    lacking = [k for k in wanted if k not in authorized]
    findings = []
    if login:
        why = " ".join(login["stderr"].split()) or "ssh ended with status %s" % login["rc"]
        findings.append(_finding("SSH key", login["rc"] == 0, "accepted", "the key is not accepted: " + why,
                                 "authorize its public key: add it to caplv_authorized_keys, and %s; journalctl -u ssh -u sshd on the host says why"
                                 % ONBOARD))
    else:
        problem = ""
        if not authorized:
            problem = "account %s has no authorized key" % account
        elif lacking:
            problem = "%d of %d keys of caplv_authorized_keys are not authorized" % (len(lacking), len(wanted))
        findings.append(_finding("SSH key", not problem, "%d authorized; not tried, without caplv_private_key_file" % len(authorized),
                                 "the key is not accepted: " + problem, ONBOARD + " with caplv_authorized_keys"))
    for what in host.get("keysfile", []) + host.get("keysdirectory", []):
        path, owner, bits = what.rsplit(" ", 2)
        if owner not in ("0", first(host, "uid")) or int(bits, 8) & 0o022:
            findings.append(_finding("SSH key", False, "", "the key is not accepted: others than %s may write %s, and sshd then refuses keys" % (account, path),
                                     "run as root: chown %s %s && chmod go-w %s" % (account, path, path)))
    return findings


def _sshd(host):
    settings = {}
    for line in host.get("sshd", []):
        key, _sign, value = line.partition(" ")
        settings.setdefault(key, value)
    if not settings:
        return _finding("sshd", False, "", "sshd does not tell its settings (sshd -T)", "run as root: sshd -t, which says what is wrong with them")
    if settings.get("pubkeyauthentication") != "yes":
        return _finding("sshd", False, "", "sshd takes no public keys (PubkeyAuthentication)", ONBOARD)
    if settings.get("forcecommand", "none") != "none":
        return _finding("sshd", False, "", "sshd runs a command of its own (ForceCommand)", "leave the account out of that rule in sshd's settings")
    sessions = int(settings.get("maxsessions", MIN_SESSIONS))
    return _finding("sshd", sessions >= MIN_SESSIONS, "MaxSessions %d, MaxStartups %s" % (sessions, settings.get("maxstartups", "?")),
                    "MaxSessions is %d" % sessions, "set it to %d or more in sshd's settings, and reload sshd" % MIN_SESSIONS)


def _session(text, virt_type, bridges):
    try:
        facts = session.parse(text)
    except session.IncompleteError as e:
        return [_finding("session mode", False, "", "asking the host about session mode: %s" % e, "the account's shell must be able to run sh")]
    missing = dict((m["piece"], m) for m in session.missing(facts, virt_type, bridges))
    found = {
        "runtime directory": "/run/user/" + facts["uid"],
        "lingering": "on",
        "bridge helper": "%s, mode %s" % (facts["helper"], facts["helpermode"].partition(" ")[2]),
        "bridge ACL": facts["aclfile"],
        "/dev/net/tun": facts["tun"],
        "/dev/kvm": facts["kvm"],
        "session daemon": "one",
        "bridge": ", ".join(bridges) or "none asked for",
    }
    return [_finding(piece, piece not in missing, found[piece], missing.get(piece, {}).get("problem"), missing.get(piece, {}).get("remedy"))
            for piece in session.PIECES]


def _libvirt(text, account, mode, virt_type, pools):
    try:
        found = lines_of(text)
    except ValueError as e:
        return [_finding("libvirt", False, "", str(e), "the account's shell must be able to run sh")]
    daemon = first(found, "daemon")
    start = {
        "system": "run as root: systemctl status libvirtd.socket virtqemud.socket, and start the one that the host uses; %s must be in group libvirt" % account,
        "session": "run as root: journalctl _UID=$(id -u %s), which says why it does not start" % account,
    }[mode]
    findings = [_finding("libvirt daemon", daemon == "ok", "%s, qemu:///%s" % (first(found, "version"), mode), "the daemon does not answer: " + daemon, start)]
    if daemon == "ok":
        offered = first(found, "virttype")
        findings.append(_finding("virtualization", offered == "ok", virt_type, "libvirt does not offer %s: %s" % (virt_type, offered), {
            "kvm": "enable virtualization in the firmware, or nested in the hypervisor above; load kvm_intel or kvm_amd, and restart libvirt's daemon",
            "qemu": "install QEMU's emulator: qemu-system-x86 or qemu-kvm",
        }[virt_type]))
        findings += [_pool(p, found, mode) for p in pools]
    hostctl = first(found, "hostctl")
    findings.append(_finding("host helper", hostctl == "ok", "answers a probe", "the helper cannot be run as root: " + hostctl, ONBOARD))
    return findings


def _pool(pool, found, mode):
    name, check = pool["name"], "pool " + pool["name"]
    virsh = "run as the account: virsh -c qemu:///%s " % mode
    for line in found.get("pool", []):
        said, state, start, path = (line.split(" ", 3) + [""])[:4]
        if said != name:
            continue
        if state == "missing":
            return _finding(check, False, "", "there is no storage pool %s" % name, ONBOARD + " with it in caplv_pools")
        if state != "active":
            return _finding(check, False, "", "storage pool %s is not active" % name, virsh + "pool-start " + name)
        if start != "yes":
            return _finding(check, False, "", "storage pool %s does not start by itself" % name, virsh + "pool-autostart " + name)
        wanted = pool.get("path")
        return _finding(check, not wanted or wanted.rstrip("/") == path.rstrip("/"), path, "storage pool %s is %s and not %s" % (name, path, wanted),
                        "correct its path in caplv_pools, or give the pool another name")
    return _finding(check, False, "", "libvirt said nothing about storage pool %s" % name, virsh + "pool-info " + name)


def _record(text, account, mode, version):
    check = "record"
    if not text:
        return _finding(check, False, "", "the host has no /etc/ansible/facts.d/caplv.fact", ONBOARD)
    try:
        record = json.loads(text)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        return _finding(check, False, "", "/etc/ansible/facts.d/caplv.fact is not a JSON object", "move it away, and " + ONBOARD)
    differs = ["%s is %s and not %s" % (key, record.get(key, "not set"), want)
               for key, want in (("version", version), ("mode", mode), ("account", account)) if record.get(key) != want]
    return _finding(check, not differs, "version %s, mode %s" % (version, mode), "; ".join(differs), ONBOARD + ", or correct the variables")


def _capacity(host):
    total, _sign, free = first(host, "memory").partition(" ")
    return _finding("capacity", total.isdigit() and int(total) > 0, "%s CPUs, %s MiB of memory, %s MiB of it free" % (first(host, "cpus"), total, free),
                    "the host does not tell its memory", "mount /proc")


def table(findings_of):
    """Return the findings of all hosts as lines. The findings of a host that could not be asked are no list."""
    rows = [("HOST", "CHECK", "", "FOUND")]
    for host in sorted(findings_of):
        for f in report(findings_of)[host]:
            rows.append((host, f["check"], "ok" if f["ok"] else "FAIL", f["found"] if f["ok"] else "%s -> %s" % (f["found"], f["remedy"])))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([cell.ljust(width) for cell, width in zip(row, widths)] + [row[3]]) for row in rows]


def report(findings_of):
    """Return the findings of all hosts, with one for each host that could not be asked."""
    unasked = _finding("connection", False, "", "the host could not be asked", "see what Ansible has said about it above")
    return dict((host, findings if isinstance(findings, (list, tuple)) else [unasked]) for host, findings in findings_of.items())
