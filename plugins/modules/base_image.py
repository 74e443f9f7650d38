#!/usr/bin/python
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: base_image
short_description: Puts a verified base image into a storage pool
description:
  - Brings a qcow2 image into the directory of a libvirt pool, from the first source that has it. It is there under its name only when
    it is complete, has the right sha256, names no other file, and C(qemu-img check) finds it whole.
  - What is on the way lies in C(.caplv-images) in the pool's directory, is resumed after an interruption, and is locked against other runs.
  - An image that a domain, a volume or a process uses is never replaced. A file of that name that this module did not put there neither.
  - The task shows how far it is, because its action works in slices of a few seconds.
options:
  name:
    description: The name of the volume.
    type: str
    required: true
  pool:
    description: The pool.
    type: str
    default: default
  mode:
    description: Whether the pool is of the system's libvirt or of the account's session.
    type: str
    choices: [system, session]
    default: system
  user:
    description: The account, whose rights are used in session mode.
    type: str
    default: caplv
  state:
    description: Whether the image is there. V(absent) removes only what this module has put there.
    type: str
    choices: [present, absent]
    default: present
  sha256:
    description: The digest of the unpacked image. Required with O(state=present).
    type: str
  sources:
    description: Where the image is, packed with gzip, xz or zstd or not at all. They are tried in this order.
    type: list
    elements: dict
    default: []
    suboptions:
      url:
        description: "V(https://…), or V(file:///…) for a file of the host."
        type: str
        required: true
      username:
        description: The user for basic authentication. It is sent to this host only, whatever it redirects to.
        type: str
      password:
        description: The password.
        type: str
      ca_file:
        description: A file of the host with the certificates of CAs to trust, instead of those of the system.
        type: str
      ca_pem:
        description: These certificates themselves.
        type: str
  src:
    description: A file of the controller to push, tried instead of O(sources).
    type: path
  size:
    description: The size of the unpacked image in bytes, if it is known; with it, space is checked before a packed image is fetched.
    type: int
    default: 0
  max_size:
    description: The most bytes that an image may have, packed or unpacked.
    type: int
    default: 68719476736
  reserve:
    description: Bytes that have to stay free on the pool's file system.
    type: int
    default: 1073741824
  keep:
    description: How many predecessors to keep. One that is wanted again is put back without a download.
    type: int
    default: 1
  timeout:
    description: Seconds that a source may take for an answer.
    type: int
    default: 30
  leave_used:
    description: With O(state=absent), leave an image that is in use rather than fail.
    type: bool
    default: false
  slice:
    description: Seconds after which to return for the action to show how far it is. 0 is no limit.
    type: int
    default: 0
  failed_sources:
    description: What the action knows of sources that have failed.
    type: list
    elements: dict
    default: []
    suboptions:
      url:
        description: The source.
        type: str
        required: true
      reason:
        description: Why it has failed.
        type: str
        required: true
  upload:
    description: What the action pushes.
    type: dict
    suboptions:
      id:
        description: What tells this file from another one.
        type: str
        required: true
      size:
        description: Its size in bytes.
        type: int
        required: true
attributes:
  check_mode:
    support: full
    description: Says what would change, and refuses what would be refused, without asking any source.
  diff_mode:
    support: full
    description: Shows the digests before and after.
author:
  - The CAPLV Authors (@caplv)
"""

EXAMPLES = r"""
- name: The image is there
  caplv.caplv.base_image:
    name: rhcos-4.21.qcow2
    sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    sources:
      - url: https://mirror.example.com/rhcos-4.21.qcow2.gz
      - url: https://mirror.openshift.com/pub/openshift-v4/dependencies/rhcos/4.21/latest/rhcos-qemu.x86_64.qcow2.gz
"""

RETURN = r"""
path:
  description: The image.
  type: str
  returned: when the pool is known
finished:
  description: Whether this is all.
  type: bool
  returned: always
progress:
  description: How far it is.
  type: dict
  returned: when it is not finished
todo:
  description: V(nothing), V(adopt), V(refresh), V(install) or V(replace).
  type: str
  returned: in check mode, with O(state=present)
failed_sources:
  description: Sources that have failed, each with url and reason.
  type: list
  elements: dict
  returned: with O(state=present)
left:
  description: Who uses an image that was left.
  type: list
  elements: str
  returned: with O(state=absent)
"""

import os
import pwd
import re
import time
import urllib.parse

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.caplv.caplv.plugins.module_utils import account as accounts
from ansible_collections.caplv.caplv.plugins.module_utils import image_fetch, image_host, image_source, image_stage, image_store

REFUSALS = (image_stage.Failed, image_source.Failed, image_store.Failed, image_host.Failed)


def problem(params):
    """Return what is wrong with the parameters, or None."""
    if not re.match(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,126}\Z", params["name"]):
        return "name is '%s'; use up to 127 letters, digits and _ . + -, and none of . + - first" % params["name"]
    if params["state"] == "absent":
        return None
    if not re.match(r"[0-9a-f]{64}\Z", params["sha256"] or ""):
        return "sha256 has to be the 64 lower-case hexadecimal digits of the unpacked image's digest"
    for source in params["sources"]:
        parts = urllib.parse.urlsplit(source["url"])
        if parts.scheme not in ("https", "file") or "@" in parts.netloc or (parts.scheme == "file") == bool(parts.netloc):
            return "a source has to be https://HOST/PATH or file:///PATH, with its password in password; %s is not" % source["url"].split("@")[-1]
    if not params["sources"] and not params["upload"]:
        return "sources is empty, and there is no src"
    return None


def wanted_of(params):
    """Return what to bring, from where, and within which limits."""
    sources = [{"url": "upload:" + params["upload"]["id"]}] if params["upload"] else params["sources"]
    return {
        "sources": sources,
        "upload": params["upload"],
        "size": params["size"],
        "max_size": params["max_size"],
        "reserve": params["reserve"],
        "keep": params["keep"],
        "limits": image_fetch.Limits(timeout=params["timeout"], size=params["max_size"]),
    }


def apply(params, check_mode):
    """Do the work, with the rights of the process. Returns the module's result."""
    host = image_host.Host(params["mode"], params["pool"])
    failed = params["failed_sources"]
    try:
        try:
            directory = host.directory()
        except image_host.Failed as error:
            # On a host that is yet to be set up, everything would change.
            if check_mode and params["state"] == "present":
                return {"changed": True, "finished": True, "failed_sources": [], "todo": "install"}
            # An image that was recorded and never got a pool, or whose pool is gone, is no longer anywhere of ours.
            if params["state"] == "absent" and isinstance(error, image_host.NoPool):
                return {"changed": False, "finished": True, "left": []}
            raise
        store = image_store.Store(directory, params["name"], params["sha256"] or "")
        if params["state"] == "absent":
            return dict(image_stage.remove(store, host, params["leave_used"], check_mode), finished=True, path=store.path)
        if check_mode:
            return dict(image_stage.predict(store, host), failed_sources=[])
        deadline = time.monotonic() + params["slice"] if params["slice"] else None
        return dict(image_stage.stage(store, wanted_of(params), host, failed, deadline), failed_sources=failed)
    except image_source.Unfinished as unfinished:
        return {"changed": False, "finished": False, "progress": unfinished.progress, "failed_sources": failed}
    except REFUSALS as error:
        return {"failure": str(error)}


def main():
    text, integer = {"type": "str"}, {"type": "int", "required": True}
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "pool": {"type": "str", "default": "default"},
            "mode": {"type": "str", "choices": ["system", "session"], "default": "system"},
            "user": {"type": "str", "default": "caplv"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "sha256": text,
            "sources": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "url": {"type": "str", "required": True},
                    "username": text,
                    "password": {"type": "str", "no_log": True},
                    "ca_file": text,
                    "ca_pem": text,
                },
            },
            "src": {"type": "path"},
            "size": {"type": "int", "default": 0},
            "max_size": {"type": "int", "default": 64 << 30},
            "reserve": {"type": "int", "default": 1 << 30},
            "keep": {"type": "int", "default": 1},
            "timeout": {"type": "int", "default": 30},
            "leave_used": {"type": "bool", "default": False},
            "slice": {"type": "int", "default": 0},
            "failed_sources": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"url": {"type": "str", "required": True}, "reason": {"type": "str", "required": True}},
            },
            "upload": {"type": "dict", "options": {"id": {"type": "str", "required": True}, "size": integer}},
        },
        supports_check_mode=True,
    )
    params = module.params
    wrong = problem(params)
    if wrong:
        module.fail_json(msg=wrong)
    if params["mode"] == "system":
        os.umask(0o077)
        result = apply(params, module.check_mode)
    else:
        result = in_session(module, params)
    if "failure" in result:
        module.fail_json(msg="The image %s cannot be %s: %s" % (params["name"], "put there" if params["state"] == "present" else "removed", result["failure"]))
    module.exit_json(**result)


def in_session(module, params):
    """Do the work as the account, whose directory the pool is."""
    try:
        account = pwd.getpwnam(params["user"])
    except KeyError:
        if module.check_mode or params["state"] == "absent":
            return {"changed": params["state"] == "present", "finished": True, "failed_sources": [], "todo": "install", "left": []}
        return {"failure": "there is no account %s; run the role service_account first" % params["user"]}

    def work():
        # The way to a proxy is all that the account may take along.
        proxies = {key: value for key, value in os.environ.items() if key.lower() in ("https_proxy", "no_proxy")}
        os.environ.clear()
        os.environ.update(accounts.clean_environment(account), **proxies)
        return apply(params, module.check_mode)

    return accounts.as_account(account, work)


if __name__ == "__main__":
    main()
