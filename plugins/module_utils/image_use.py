# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Finds out who uses an image: a domain, a volume on top of it, or a process that has it open.

A replaced image under a volume that was made on the old one destroys the volume, whether or not its machine runs.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import fcntl
import os
import stat
import struct
import xml.etree.ElementTree

from . import qcow2

DEPTH = 32
# QEMU locks single bytes between these for what it does with a file, and what others may do meanwhile (block/file-posix.c).
QEMU_LOCKS = (100, 300)
F_OFD_GETLK = 36
FLOCK = "hhqqi4x"


def sources(domain):
    """Return the files that a domain's XML names as disks or below them."""
    found = []
    for element in xml.etree.ElementTree.fromstring(domain).iter("source"):
        found.extend(element.get(key) for key in ("file", "dev") if element.get(key))
    return found


def backing(path):
    """Return what a qcow2 file names as its backing file, as a path, or None."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as image:
            if not stat.S_ISREG(os.fstat(image.fileno()).st_mode):
                return None
            header = image.read(20)
            if header[:4] != qcow2.MAGIC or len(header) < 20:
                return None
            offset, length = struct.unpack(">QI", header[8:20])
            if not offset or not 0 < length <= 1023:
                return None
            image.seek(offset)
            name = os.fsdecode(image.read(length))
    except (OSError, OverflowError):
        return None
    name = name[5:] if name.startswith("file:") else name
    return os.path.join(os.path.dirname(os.path.realpath(path)), name)


def chain(path):
    """Return a file and everything below it."""
    found = []
    while path and path not in found and len(found) < DEPTH:
        found.append(path)
        path = backing(path)
    return found


def is_locked(path):
    """Return whether QEMU, of any account, holds the image."""
    with open(path, "rb") as image:
        wish = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, QEMU_LOCKS[0], QEMU_LOCKS[1] - QEMU_LOCKS[0], 0)
        return struct.unpack(FLOCK, fcntl.fcntl(image, F_OFD_GETLK, wish))[0] != fcntl.F_UNLCK


def holders(path):
    """Return the processes that have a file open, as far as this account may see them."""
    wanted = os.stat(path)
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        try:
            for descriptor in os.listdir("/proc/%s/fd" % pid):
                open_file = os.stat("/proc/%s/fd/%s" % (pid, descriptor))
                if (open_file.st_dev, open_file.st_ino) == (wanted.st_dev, wanted.st_ino):
                    with open("/proc/%s/comm" % pid) as comm:
                        found.append("process %s (%s)" % (pid, comm.read().strip()))
                    break
        except OSError:
            continue
    return found


def volumes(directories):
    """Return the files that are directly in these directories."""
    found = []
    for directory in directories:
        try:
            found.extend(os.path.join(directory, name) for name in sorted(os.listdir(directory)))
        except OSError:
            continue
    return found


def users(path, domains, directories):
    """Return who uses the image at PATH, one description each.

    DOMAINS is a list of names and XML; DIRECTORIES are those of the pools, where volumes may be on top of the image.
    """
    wanted = os.stat(path)

    def is_it(other):
        try:
            found = os.stat(other)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)

    found = []
    for name, xml_text in domains:
        if any(is_it(below) for source in sources(xml_text) for below in chain(source)):
            found.append("domain %s" % name)
    for volume in volumes(directories):
        if any(is_it(below) for below in chain(volume)[1:]):
            found.append("volume %s" % volume)
    found.extend(holders(path))
    if not found and is_locked(path):
        found.append("a process of QEMU")
    return found
