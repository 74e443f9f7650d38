# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Judges an image that is unpacked: its digest, its header, and then, under limits, what qemu-img says of it."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import hashlib
import json
import os
import pwd
import resource
import subprocess

from . import qcow2

BLOCK = 1 << 20
MEMORY = 1 << 30
CPU_SECONDS = 900
WALL_SECONDS = 1800
CHECK_CODES = {1: "could not be checked", 2: "is corrupt"}


class Failed(Exception):
    """The image must not be used, or cannot be checked; the message says why."""


def digest(path):
    """Return the sha256 of a file."""
    found = hashlib.sha256()
    with open(path, "rb") as image:
        for block in iter(lambda: image.read(BLOCK), b""):
            found.update(block)
    return found.hexdigest()


def inspect(path):
    """Return the virtual size of a qcow2 image that stands alone and is whole. Raises Failed for any other file."""
    with open(path, "rb") as image:
        try:
            size = qcow2.virtual_size(image.read(qcow2.HEADER_SIZE), os.fstat(image.fileno()).st_size)
        except qcow2.Refused as error:
            raise Failed("the image is refused: %s" % error)
        info = json.loads(_qemu_img("info", image)[1])
        if info.get("backing-filename") or "data-file" in info.get("format-specific", {}).get("data", {}):
            raise Failed("the image is refused: qemu-img says that it names another file")
        if info.get("virtual-size") != size:
            raise Failed("the image is refused: qemu-img does not find the size that its header has")
        # Leaked clusters (code 3) only waste space.
        code, said = _qemu_img("check", image)
        if code not in (0, 3):
            raise Failed("the image %s: %s" % (CHECK_CODES.get(code, "could not be checked"), said.strip()[:400]))
    return size


def _limit(unprivileged):
    # Not an import in the child: this runs between fork and exec.
    for what, value in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, CPU_SECONDS), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        resource.setrlimit(what, (value, value))
    if unprivileged is not None:
        os.setgroups([])
        os.setgid(unprivileged.pw_gid)
        os.setuid(unprivileged.pw_uid)


def _qemu_img(what, image):
    """Run qemu-img on an open file, as an account without rights where this process is root. Returns its exit code and output."""
    unprivileged = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    # By the descriptor: the account need not reach the directory.
    command = ["qemu-img", what, "-f", "qcow2", "--output=json", "/proc/self/fd/%d" % image.fileno()]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), "LC_ALL": "C"},
            pass_fds=[image.fileno()],
            start_new_session=True,
            preexec_fn=lambda: _limit(unprivileged),
        )
    except OSError as error:
        raise Failed("qemu-img cannot be run: %s; install the package qemu-utils or qemu-img" % error)
    try:
        out, err = process.communicate(timeout=WALL_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Failed("qemu-img %s has not ended after %d seconds" % (what, WALL_SECONDS))
    except BaseException:
        process.kill()
        process.wait()
        raise
    err = err.decode("utf-8", "replace").strip()
    if process.returncode < 0:
        raise Failed("qemu-img %s was ended by signal %d: the image needs more memory or time than it gets" % (what, -process.returncode))
    if what == "info" and process.returncode:
        raise Failed("qemu-img cannot read the image: %s" % err)
    return process.returncode, err or out.decode("utf-8", "replace") if process.returncode else out.decode("utf-8", "replace")
