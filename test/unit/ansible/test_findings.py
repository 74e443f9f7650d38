# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""verify_host names what is broken, and nothing else."""

import pathlib
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPOSITORY / "collections"))

from ansible_collections.caplv.caplv.plugins.plugin_utils import findings  # noqa: E402

HOST = """uid=1001
home=/home/caplv
hostkey=ssh-ed25519 AAAAhost
sshd=pubkeyauthentication yes
sshd=maxsessions 10
sshd=maxstartups 10:30:100
keysfile=/home/caplv/.ssh/authorized_keys 1001 600
authorizedkey=restrict,from="10.0.0.0/8" ssh-ed25519 AAAAkey operator
keysdirectory=/home/caplv 1001 700
firmware=/usr/share/qemu/firmware/60-edk2-x86_64.json
memory=8000 4000
cpus=4
bridge=br0
record={"version": "0.1.0", "mode": "session", "account": "caplv"}
end=yes
"""
SESSION = """account=caplv
uid=1001
runtime=1001 700
linger=yes
helper=/usr/lib/qemu/qemu-bridge-helper
helpermode=0 4750
helperexecutable=yes
aclfile=/etc/qemu/bridge.conf
aclstate=readable
acl=allow br0
tun=usable
kvm=usable
bridge=br0
end=yes
"""
LIBVIRT = """daemon=ok
version=9.0.0
virttype=ok
pool=default active yes /home/caplv/.local/share/libvirt/images
hostctl=ok
end=yes
"""


def evaluate(host=HOST, session=SESSION, libvirt=LIBVIRT, login=None, mode="session", keys=("ssh-ed25519 AAAAkey x",), pools=None, bridges=("br0",)):
    answers = {"host": host, "session": session, "libvirt": libvirt, "login": login or {}}
    return findings.evaluate(answers, "caplv", mode, "kvm", list(bridges), pools or [{"name": "default"}], list(keys), "0.1.0")


def failed(**answers):
    return [(f["check"], f["found"], f["remedy"]) for f in evaluate(**answers) if not f["ok"]]


def test_a_host_in_order_lacks_nothing():
    assert failed() == []
    assert failed(login={"rc": 0, "stderr": ""}) == []
    assert {f["check"] for f in evaluate()} >= {"SSH key", "sshd", "lingering", "bridge helper", "libvirt daemon", "pool default", "host helper", "record"}


@pytest.mark.parametrize("name,part,old,new,check,says", [
    ("helper not setuid", "session", "0 4750", "0 755", "bridge helper", "neither setuid root"),
    ("bridge not allowed", "session", "acl=allow br0", "acl=allow br7", "bridge ACL", "does not allow bridge br0"),
    ("lingering off", "session", "linger=yes", "linger=no", "lingering", "it is off"),
    ("pool inactive", "libvirt", "default active", "default inactive", "pool default", "is not active"),
    ("pool missing", "libvirt", "default active yes", "default missing no", "pool default", "no storage pool"),
    ("pool not started by itself", "libvirt", "active yes", "active no", "pool default", "start by itself"),
    ("KVM missing", "libvirt", "virttype=ok", "virttype=error: KVM is not supported", "virtualization", "does not offer kvm: error: KVM"),
    ("daemon down", "libvirt", "daemon=ok", "daemon=error: failed to connect", "libvirt daemon", "failed to connect"),
    ("helper not run", "libvirt", "hostctl=ok", "hostctl=sudo: a password is required", "host helper", "a password is required"),
    ("no key", "host", "authorizedkey=", "other=", "SSH key", "not accepted: account caplv has no authorized key"),
    ("another key", "host", "AAAAkey", "AAAAother", "SSH key", "1 of 1 keys"),
    ("keys in a place open to others", "host", "caplv 1001 700", "caplv 1001 777", "SSH key", "others than caplv may write /home/caplv"),
    ("sshd without keys", "host", "pubkeyauthentication yes", "pubkeyauthentication no", "sshd", "no public keys"),
    ("too few sessions", "host", "maxsessions 10", "maxsessions 2", "sshd", "MaxSessions is 2"),
    ("no firmware", "host", "firmware=", "other=", "firmware", "no descriptor"),
    ("another version", "host", '"0.1.0"', '"0.0.9"', "record", "version is 0.0.9 and not 0.1.0"),
    ("another mode", "host", '"session"', '"system"', "record", "mode is system and not session"),
    ("no record", "host", "record=", "other=", "record", "has no /etc/ansible"),
    ("no account", "host", "uid=1001", "uid=", "account", "no account caplv"),
])
def test_what_is_broken_is_named_with_the_way_to_mend_it(name, part, old, new, check, says):
    text = {"host": HOST, "session": SESSION, "libvirt": LIBVIRT}[part]
    assert old in text
    found = failed(**{part: text.replace(old, new, 1)})
    assert [f[0] for f in found] == [check], name
    assert says in found[0][1]
    assert found[0][2]


def test_a_key_that_is_refused_is_named():
    found = failed(login={"rc": 255, "stderr": "caplv@192.0.2.1: Permission denied (publickey).\n"})
    assert [f[0] for f in found] == ["SSH key"]
    assert "not accepted: caplv@192.0.2.1: Permission denied" in found[0][1]


def test_a_pool_elsewhere_is_named():
    found = failed(pools=[{"name": "default", "path": "/srv/images"}])
    assert found[0][1] == "storage pool default is /home/caplv/.local/share/libvirt/images and not /srv/images"


def test_system_mode_needs_nothing_of_session_mode():
    host = HOST.replace('"session"', '"system"')
    assert failed(host=host, session="", mode="system") == []
    assert [f[0] for f in failed(host=host, session="", mode="system", bridges=["br9"])] == ["bridge"]


def test_an_answer_cut_short_is_not_taken_for_a_host_in_order():
    with pytest.raises(ValueError):
        evaluate(host=HOST.replace("end=yes\n", ""))
    assert [f[0] for f in failed(session="")] == ["session mode"]
    assert [f[0] for f in failed(libvirt="This account is not available.")] == ["libvirt"]


def test_the_table_has_every_host():
    lines = findings.table({"b": evaluate(), "a": None})
    assert lines[0].split() == ["HOST", "CHECK", "FOUND"]
    assert lines[1].split()[:3] == ["a", "connection", "FAIL"]
    assert all(line.startswith("b ") and "  ok" in line for line in lines[2:])
