# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Unpacks an image while it is copied, hashes what comes out, and stops at a limit.

The format is told by the first bytes, never by a name. A few kilobytes may unpack to terabytes, so no step asks for more
than one block of output at a time.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import hashlib
import lzma
import os
import subprocess
import zlib

BLOCK = 1 << 20
XZ_MEMORY = 256 << 20
MAGICS = (("gzip", b"\x1f\x8b"), ("xz", b"\xfd7zXZ\x00"), ("zstd", b"\x28\xb5\x2f\xfd"))


class Failed(Exception):
    """The image cannot be unpacked; the message says why."""


def compression(first):
    """Return gzip, xz, zstd or raw for the FIRST bytes of a file."""
    for name, magic in MAGICS:
        if first.startswith(magic):
            return name
    return "raw"


def unpack(source, target, limit, progress=None):
    """Copy the file SOURCE, unpacked, to the file TARGET. Return the sha256 and the size of what was written.

    Raises Failed where more than LIMIT bytes would come out. PROGRESS is called with the number of bytes written so far.
    """
    first = source.read(6)
    source.seek(0)
    blocks = {"gzip": _gzip, "xz": _xz, "zstd": _zstd, "raw": _raw}[compression(first)](source)
    digest = hashlib.sha256()
    size = 0
    try:
        for block in blocks:
            size += len(block)
            if size > limit:
                raise Failed("the image is larger than the limit of %d bytes once it is unpacked" % limit)
            digest.update(block)
            target.write(block)
            if progress:
                progress(size)
    finally:
        blocks.close()
    return digest.hexdigest(), size


def _raw(source):
    while True:
        block = source.read(BLOCK)
        if not block:
            return
        yield block


def _gzip(source):
    """Yield what the members of a gzip file hold; pigz and concatenation make files of several."""
    pending = source.read(BLOCK)
    while pending:
        member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        while not member.eof:
            if not pending:
                raise Failed("the gzip file is cut short")
            try:
                block = member.decompress(pending, BLOCK)
            except zlib.error as error:
                raise Failed("the gzip file is damaged: %s" % error)
            pending = member.unused_data if member.eof else member.unconsumed_tail
            if block:
                yield block
            pending = pending or source.read(BLOCK)


def _xz(source):
    pending = source.read(BLOCK)
    while pending:
        stream = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
        while not stream.eof:
            if stream.needs_input and not pending:
                raise Failed("the xz file is cut short")
            try:
                block = stream.decompress(pending, BLOCK)
            except lzma.LZMAError as error:
                raise Failed("the xz file is damaged: %s" % error)
            pending = b""
            if block:
                yield block
            if stream.needs_input and not stream.eof:
                pending = source.read(BLOCK)
        pending = stream.unused_data or source.read(BLOCK)


def _zstd(source):
    """Yield what the program zstd writes: Python learned zstd only in 3.14."""
    # The program reads from the descriptor, which a buffered seek may have left where it was.
    os.lseek(source.fileno(), 0, os.SEEK_SET)
    try:
        process = subprocess.Popen(["zstd", "-dcq"], stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise Failed("the image is compressed with zstd, and the program zstd cannot be run: %s; install the package zstd" % error)
    try:
        while True:
            block = process.stdout.read(BLOCK)
            if not block:
                break
            yield block
        reason = process.stderr.read(400).decode("utf-8", "replace").strip()
        if process.wait() != 0:
            raise Failed("the zstd file is cut short or damaged: %s" % reason)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
