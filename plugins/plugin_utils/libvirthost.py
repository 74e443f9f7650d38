# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a LibvirtHost object means to Ansible: the name, the variables and the groups of one host. Pure: no I/O.

Whoever may write an object, or make a host answer oddly, decides what its fields hold. So every text that gets into an inventory
is checked against what that field can look like, whatever the schema of the API server says; what does not match is left out.
"""

from __future__ import annotations

import re
import typing as t

GROUP = "infrastructure.cluster.x-k8s.io"
VERSION = "v1alpha1"
RESOURCE = "libvirthosts"

# The ways to make groups, as the option group_by names them.
GROUP_BY = ("mode", "namespace", "readiness", "label")

# A host that no probe has looked at has no condition Ready, and so no reason.
NOT_PROBED = "NotProbed"

_URI = re.compile(
    r"qemu\+ssh://(?P<user>[A-Za-z_][A-Za-z0-9_.-]*)@(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?))"
    r"(?::(?P<port>[0-9]{1,5}))?/(?P<mode>system|session)"
)
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+~-]{0,63}")


class InvalidObject(Exception):
    """An object that no host can be made of; the text says why, and repeats nothing of it that is not plain."""


class Host(t.NamedTuple):
    """A host of the inventory."""

    name: str
    variables: dict[str, t.Any]
    groups: list[str]


def record(item: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the part of an object that an inventory is made of. It is what a cache keeps; nothing in it is secret."""
    metadata, spec, status = _mapping(item, "metadata"), _mapping(item, "spec"), _mapping(item, "status")
    return {
        "metadata": {key: metadata[key] for key in ("name", "namespace", "labels") if key in metadata},
        "spec": {key: spec[key] for key in ("uri", "hostKeyFingerprint", "virtType") if key in spec},
        "status": {
            key: status[key]
            for key in ("hostKeyFingerprint", "libvirtVersion", "hypervisorVersion", "machineRef", "machineCount", "setup")
            if key in status
        }
        | {"conditions": [c for c in _list(status, "conditions") if isinstance(c, dict) and c.get("type") == "Ready"]},
    }


def describe(item: t.Mapping[str, t.Any], group_by: t.Collection[str] = GROUP_BY) -> Host:
    """Return the host that an object, or its record, stands for. Raises InvalidObject."""
    metadata, spec, status = _mapping(item, "metadata"), _mapping(item, "spec"), _mapping(item, "status")
    name, namespace = _plain(_NAME, metadata.get("name")), _plain(_NAME, metadata.get("namespace"))
    if not name or not namespace:
        raise InvalidObject("an object without a name and a namespace is not from a Kubernetes API server")
    uri = _URI.fullmatch(spec.get("uri") or "") if isinstance(spec.get("uri"), str) else None
    if not uri:
        raise InvalidObject(
            "LibvirtHost %s/%s: spec.uri must read qemu+ssh://USER@HOST[:PORT]/system or qemu+ssh://USER@HOST[:PORT]/session" % (namespace, name)
        )
    labels = _labels(metadata)
    ready, reason = _readiness(status)
    variables: dict[str, t.Any] = {
        "ansible_host": uri["v6"] or uri["host"],
        # The words of the roles: a playbook that is run over this inventory sets the host up as the object says.
        "caplv_user": uri["user"],
        "caplv_mode": uri["mode"],
        "caplv_object_name": name,
        "caplv_object_namespace": namespace,
        "libvirthost_labels": labels,
        "libvirthost_ready": ready,
        "libvirthost_reason": reason,
        "libvirthost_machine_count": _count(status.get("machineCount")),
    }
    if uri["port"]:
        variables["ansible_port"] = int(uri["port"])
    for key, value in {
        "caplv_virt_type": spec.get("virtType") if spec.get("virtType") in ("kvm", "qemu") else None,
        "libvirthost_host_key_fingerprint": _plain(_FINGERPRINT, spec.get("hostKeyFingerprint")) or _plain(_FINGERPRINT, status.get("hostKeyFingerprint")),
        "libvirthost_libvirt_version": _plain(_WORD, status.get("libvirtVersion")),
        "libvirthost_hypervisor_version": _plain(_WORD, status.get("hypervisorVersion")),
        "libvirthost_machine": _plain(_NAME, _mapping(status, "machineRef").get("name")),
        "libvirthost_roles_version": _plain(_WORD, _mapping(status, "setup").get("rolesVersion")),
    }.items():
        if value:
            variables[key] = value
    # Neither part can be mistaken for the other: a namespace has no dots.
    return Host("%s.%s" % (name, namespace), variables, _groups(variables, group_by))


def _groups(variables: t.Mapping[str, t.Any], group_by: t.Collection[str]) -> list[str]:
    groups = []
    if "mode" in group_by:
        groups.append("%s_hosts" % variables["caplv_mode"])
    if "namespace" in group_by:
        groups.append("namespace_" + variables["caplv_object_namespace"])
    if "readiness" in group_by:
        groups += ["ready"] if variables["libvirthost_ready"] else ["not_ready", "reason_" + variables["libvirthost_reason"]]
    if "label" in group_by:
        groups += ["label_%s_%s" % pair if pair[1] else "label_" + pair[0] for pair in sorted(variables["libvirthost_labels"].items())]
    return [re.sub(r"[^A-Za-z0-9_]", "_", group) for group in groups]


def _labels(metadata: t.Mapping[str, t.Any]) -> dict[str, str]:
    return {key: value for key, value in _mapping(metadata, "labels").items() if _plain(_LABEL_KEY, key) and _plain(_LABEL_VALUE, value) is not None}


def _readiness(status: t.Mapping[str, t.Any]) -> tuple[bool, str]:
    for condition in _list(status, "conditions"):
        if isinstance(condition, dict) and condition.get("type") == "Ready":
            return condition.get("status") == "True", _plain(_WORD, condition.get("reason")) or NOT_PROBED
    return False, NOT_PROBED


def _plain(pattern: re.Pattern[str], value: t.Any) -> str | None:
    """Return a text that is of a form, and None for anything else."""
    return value if isinstance(value, str) and pattern.fullmatch(value) else None


def _count(value: t.Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _mapping(parent: t.Mapping[str, t.Any], key: str) -> dict[str, t.Any]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def _list(parent: t.Mapping[str, t.Any], key: str) -> list[t.Any]:
    value = parent.get(key)
    return value if isinstance(value, list) else []
