# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Judges the header of a qcow2 image before any tool of QEMU opens the file.

An image may name other files of the host: a backing file, or an external data file. A tool that opens such an image
opens those too, so the header is read here, with nothing that follows a name in it.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import struct

MAGIC = b"QFI\xfb"
HEADER_SIZE = 104
VERSION_2_SIZE = 72

DIRTY = 1 << 0
CORRUPT = 1 << 1
EXTERNAL_DATA = 1 << 2
COMPRESSION_TYPE = 1 << 3
EXTENDED_L2 = 1 << 4
ACCEPTED = DIRTY | COMPRESSION_TYPE | EXTENDED_L2


class Refused(Exception):
    """The image must not be used; the message says why."""


def virtual_size(header, file_size):
    """Return the size in bytes that a guest sees, or raise Refused. HEADER is the first HEADER_SIZE bytes of the file."""
    if header[:4] != MAGIC:
        raise Refused("it is not a qcow2 image (its first bytes are not those of qcow2)")
    if len(header) < VERSION_2_SIZE:
        raise Refused("its header is cut short")
    version, backing, _backing_length, cluster_bits, size, encryption, l1_entries, l1, refcounts, refcount_clusters, snapshots, snapshot_table = struct.unpack(
        ">IQIIQIIQQIIQ", header[4:72]
    )
    if version not in (2, 3):
        raise Refused("its version of qcow2 is %d, and only 2 and 3 are known" % version)
    if backing:
        raise Refused("it has a backing file; flatten it with qemu-img convert first")
    if encryption:
        raise Refused("it is encrypted")
    if version == 3:
        _refuse_features(header)
    if not 9 <= cluster_bits <= 21:
        raise Refused("its cluster size is outside of 512 bytes to 2 MiB")
    _refuse_outside("L1 table", l1, l1_entries * 8, file_size)
    _refuse_outside("refcount table", refcounts, refcount_clusters << cluster_bits, file_size)
    if snapshots:
        _refuse_outside("snapshot table", snapshot_table, snapshots * 40, file_size)
    return size


def _refuse_features(header):
    if len(header) < HEADER_SIZE:
        raise Refused("its header is cut short")
    incompatible = struct.unpack(">Q", header[72:80])[0]
    if incompatible & EXTERNAL_DATA:
        raise Refused("it has an external data file")
    if incompatible & CORRUPT:
        raise Refused("it is marked as corrupt")
    if incompatible & ~ACCEPTED:
        raise Refused("it needs features that are not known here (bits %#x)" % (incompatible & ~ACCEPTED))


def _refuse_outside(table, offset, length, file_size):
    if offset + length > file_size:
        raise Refused("its %s lies outside of the file; the file is cut short or not an image" % table)
