# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

import copy
import json

import pytest

from plugins.plugin_utils import libvirthost

ATTACK = "{{ lookup('pipe', 'id') }}"

HOST = {
    "metadata": {"name": "alpha", "namespace": "site-a", "labels": {"topology.kubernetes.io/zone": "rack-1", "spare": ""}, "annotations": {"note": "x"}},
    "spec": {"uri": "qemu+ssh://caplv@10.0.0.1/system", "secretRef": {"name": "the-key"}, "virtType": "kvm"},
    "status": {
        "conditions": [
            {"type": "HostKeyPinned", "status": "True", "reason": "FromSpec"},
            {"type": "Ready", "status": "False", "reason": "Unreachable", "message": "no route"},
        ],
        "machineCount": 2,
        "machineRef": {"name": "worker-1"},
    },
}


def change(path, value):
    """Return HOST with another value at a path."""
    host = copy.deepcopy(HOST)
    *parents, last = path
    where = host
    for key in parents:
        where = where.setdefault(key, {})
    where[last] = value
    return host


@pytest.mark.parametrize(
    "uri, address, port, user, mode",
    [
        ("qemu+ssh://caplv@host-1.example.com/system", "host-1.example.com", None, "caplv", "system"),
        ("qemu+ssh://svc_1@10.0.0.1:2222/session", "10.0.0.1", 2222, "svc_1", "session"),
        ("qemu+ssh://caplv@[fd00::1]/system", "fd00::1", None, "caplv", "system"),
        ("qemu+ssh://caplv@[fd00::1]:22/session", "fd00::1", 22, "caplv", "session"),
    ],
)
def test_the_uri_says_where_and_how(uri, address, port, user, mode):
    v = libvirthost.describe(change(["spec", "uri"], uri)).variables
    assert (v["ansible_host"], v.get("ansible_port"), v["caplv_user"], v["caplv_mode"]) == (address, port, user, mode)
    assert "ansible_user" not in v


@pytest.mark.parametrize(
    "uri",
    [
        None,
        7,
        "",
        "qemu:///system",
        "qemu+ssh://-oProxyCommand=id@h/system",
        "qemu+ssh://caplv@-oProxyCommand=id/system",
        "qemu+ssh://caplv:hunter2@h/system",
        "qemu+ssh://caplv@h/system?keyfile=/etc/shadow",
        "qemu+ssh://caplv@{{h}}/system",
        "qemu+ssh://caplv@h/system\n",
    ],
)
def test_a_uri_of_another_form_makes_no_host(uri):
    with pytest.raises(libvirthost.InvalidObject, match=r"site-a/alpha: spec\.uri must read") as e:
        libvirthost.describe(change(["spec", "uri"], uri))
    assert "hunter2" not in str(e.value)


def test_groups_come_from_mode_namespace_readiness_and_labels():
    assert libvirthost.describe(HOST).groups == [
        "system_hosts",
        "namespace_site_a",
        "not_ready",
        "reason_Unreachable",
        "label_spare",
        "label_topology_kubernetes_io_zone_rack_1",
    ]
    assert libvirthost.describe(HOST, ["namespace"]).groups == ["namespace_site_a"]


def test_a_host_that_is_ready_is_in_one_group_for_it():
    ready = change(["status", "conditions"], [{"type": "Ready", "status": "True", "reason": "HostReady"}])
    assert libvirthost.describe(ready, ["readiness"]).groups == ["ready"]


def test_a_host_without_a_status_has_not_been_probed():
    host = {key: HOST[key] for key in ("metadata", "spec")}
    assert libvirthost.describe(host, ["readiness"]).groups == ["not_ready", "reason_NotProbed"]


@pytest.mark.parametrize(
    "path",
    [
        ["metadata", "labels", "note"],
        ["metadata", "annotations", "note"],
        ["spec", "hostKeyFingerprint"],
        ["spec", "virtType"],
        ["status", "hostKeyFingerprint"],
        ["status", "libvirtVersion"],
        ["status", "hypervisorVersion"],
        ["status", "machineRef", "name"],
        ["status", "setup", "rolesVersion"],
        ["status", "machineCount"],
    ],
)
def test_text_that_could_be_a_template_does_not_get_in(path):
    host = libvirthost.describe(change(path, ATTACK))
    assert "lookup" not in json.dumps(host.variables) + json.dumps(host.groups)


def test_neither_do_reasons_and_messages_of_conditions():
    host = libvirthost.describe(change(["status", "conditions"], [{"type": "Ready", "status": ATTACK, "reason": ATTACK, "message": ATTACK}]))
    assert "lookup" not in json.dumps(host.variables) + json.dumps(host.groups)
    assert host.variables["libvirthost_ready"] is False


@pytest.mark.parametrize("part", ["metadata", "spec", "status"])
@pytest.mark.parametrize("value", [None, [], "text", 7])
def test_an_object_of_another_shape_is_an_error_or_is_read_as_far_as_it_goes(part, value):
    host = copy.deepcopy(HOST)
    host[part] = value
    if part == "status":
        assert libvirthost.describe(host).variables["libvirthost_reason"] == "NotProbed"
    else:
        with pytest.raises(libvirthost.InvalidObject):
            libvirthost.describe(host)


def test_a_record_makes_the_same_host_and_keeps_nothing_else():
    kept = libvirthost.record(HOST)
    assert libvirthost.describe(kept) == libvirthost.describe(HOST)
    text = json.dumps(kept)
    assert "secretRef" not in text and "annotations" not in text and "HostKeyPinned" not in text
