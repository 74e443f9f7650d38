# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs on a host and prints, in a stable order, everything there that onboarding could change.

That is: files with type, mode, owner, and content or target; accounts and groups; units; pools, networks and domains; mounts.
Listings are compared as differences, so a host's name, address and keys do not matter.
"""

import fnmatch
import glob
import grp
import hashlib
import os
import pwd
import re
import stat
import subprocess

# What is left out, and why.
VOLATILE = [
    # Caches, logs, temporary files: every host has them and nobody relies on them.
    "/var/cache", "/var/lib/apt", "/var/log", "/var/tmp", "*/__pycache__",
    # Packages stay.
    "/var/lib/dpkg/[!s]*", "/var/lib/dpkg/status*",
    # Seeds, clocks and timers of systemd; /var/lib/systemd/linger is not left out.
    "/var/lib/systemd/[!l]*",
    # What timers of the distribution write once a day.
    "/var/backups", "/var/lib/logrotate", "/var/lib/man-db",
    # The last state but one, which tells how one got to the last.
    "/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/subuid-", "/etc/subgid-", "/var/lib/dpkg/statoverride-*",
    # Written by whoever looks.
    "/etc/.pwd.lock", "/etc/ld.so.cache",
    # Ansible's own directory for modules.
    "/root/.ansible",
    # The history of virsh, which is empty: it is written when virsh ends, and the operator keeps its virsh for a while.
    "/home/*/.cache/libvirt/virsh",
    # What libvirt's daemons leave when they start: leases of networks, sockets, what they know of the firmware.
    "/var/lib/libvirt/dnsmasq", "/var/lib/libvirt/qemu/domain-*",
]
# Directories that libvirt makes with the first pool and keeps. What is in them is shown.
LAZY = {"/etc/libvirt/storage", "/etc/libvirt/storage/autostart"}
volatile = re.compile("|".join("(?:%s)" % fnmatch.translate(p) for p in VOLATILE))


def digest(path):
    with open(path, "rb") as f:
        content = f.read()
    if path.endswith(".xml") and "/libvirt/" in path:
        # Identifiers that libvirt makes up differ from host to host.
        content = re.sub(rb"<uuid>.*</uuid>|<mac address=.*/>", b"", content)
    elif path == "/etc/shadow":
        # The day of the last change is that of the run.
        content = re.sub(rb"(?m)^([^:]*:[^:]*):[^:]*", rb"\1", content)
    return hashlib.sha256(content).hexdigest()[:16]


def show(path, packaged):
    s = os.lstat(path)
    if stat.S_ISLNK(s.st_mode):
        print("l", path, "->", os.readlink(path))
        return
    what = [stat.filemode(s.st_mode), "%d:%d" % (s.st_uid, s.st_gid), path]
    if stat.S_ISREG(s.st_mode):
        # What packages have is told by its size.
        what.append(str(s.st_size) if packaged else digest(path))
    print(*what)


def tree(top, packaged=False):
    if not os.path.lexists(top):
        return
    show(top, packaged)
    device = os.lstat(top).st_dev
    for directory, directories, files in os.walk(top):
        for name in sorted(directories + files):
            path = os.path.join(directory, name)
            if volatile.match(path) or (packaged and path.startswith("/usr/local/")):
                continue
            if path not in LAZY:
                show(path, packaged)
        directories[:] = sorted(
            d for d in directories
            if not volatile.match(os.path.join(directory, d)) and os.lstat(os.path.join(directory, d)).st_dev == device
        )


def run(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True)
    return [line.split() for line in result.stdout.splitlines() if line.strip()]


def libvirt():
    if not os.path.exists("/usr/bin/virsh"):
        return
    for kind, command in ("pool", "pool-list"), ("domain", "list"), ("network", "net-list"):
        for line in sorted(run("virsh", "-q", "-c", "qemu:///system", command, "--all")):
            print(kind, *(line[1:] if kind == "domain" else line))


def units():
    for line in sorted(run("systemctl", "list-unit-files", "--no-legend", "--no-pager")):
        # Of the logins that look, too, there are scopes.
        if not line[0].endswith(".scope"):
            print("unit", line[0], line[1])
    managers = ["user@%s.service" % os.path.basename(d) for d in glob.glob("/run/user/*") if d != "/run/user/0"]
    for unit in ["libvirtd.socket", "virtqemud.socket"] + managers:
        print("active", unit, *run("systemctl", "is-active", unit)[0])


libvirt()
for top in "/etc", "/var", "/opt", "/root", "/home", "/srv", "/usr/local", "/usr/libexec/caplv", "/run/caplv":
    tree(top)
tree("/usr", packaged=True)
units()
with open("/proc/mounts") as mounts:
    for mount in mounts:
        if mount.split()[1].startswith(("/run/caplv", "/run/user/")) and mount.split()[1] != "/run/user/0":
            print("mount", *mount.split()[1:3])
for account in sorted(pwd.getpwall()):
    print("account", account.pw_name, account.pw_uid, account.pw_gid, account.pw_dir, account.pw_shell)
for group in sorted(grp.getgrall()):
    print("group", group.gr_name, group.gr_gid, ",".join(sorted(group.gr_mem)))
for device in "/dev/kvm", "/dev/net/tun":
    if os.path.exists(device):
        show(device, True)
