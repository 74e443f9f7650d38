# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""The files of base images in the directory of a pool: the image itself, and beside it a directory .caplv-images with

NAME.json            what is known of the image and of its predecessors that are kept
NAME.SHA.partial     what was downloaded so far, with where from in NAME.SHA.source
NAME.SHA.unpacked    the image while it is unpacked
NAME.SHA.kept        a predecessor

where SHA is the beginning of the image's digest. The directory is what a run locks. It is on the pool's own file system, and
libvirt does not look into it.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import contextlib
import fcntl
import json
import os
import stat
import time

STAGING = ".caplv-images"


class Failed(Exception):
    """The directory is not as it has to be; the message says why and what to do."""


class Busy(Exception):
    """Another run has the directory."""


class Store(object):
    """One image of a pool."""

    def __init__(self, directory, name, sha256):
        self.directory, self.name, self.sha256 = directory, name, sha256
        self.path = os.path.join(directory, name)
        self.staging = os.path.join(directory, STAGING)
        self.record_path = os.path.join(self.staging, name + ".json")
        self.partial = self._beside(sha256, "partial")
        self.source = self._beside(sha256, "source")
        self.unpacked = self._beside(sha256, "unpacked")

    def _beside(self, sha256, kind):
        return os.path.join(self.staging, "%s.%s.%s" % (self.name, sha256[:16], kind))

    def kept(self, sha256):
        """Return the path of a predecessor."""
        return self._beside(sha256, "kept")

    @contextlib.contextmanager
    def lock(self, seconds):
        """Hold the directory, and make it where it is missing. Raises Busy after so many seconds."""
        until = time.monotonic() + seconds
        while True:
            descriptor = self._open()
            try:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    if time.monotonic() >= until:
                        raise Busy()
                    time.sleep(0.2)
                    continue
                # Whoever had it before may have removed it.
                if os.path.isdir(self.staging) and os.path.samestat(os.stat(self.staging), os.fstat(descriptor)):
                    yield
                    return
            finally:
                os.close(descriptor)

    def _open(self):
        try:
            os.mkdir(self.staging, 0o700)
        except FileExistsError:
            pass
        except FileNotFoundError:
            raise Failed("there is no directory %s; run the role storage_pool first" % self.directory)
        descriptor = os.open(self.staging, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if os.fstat(descriptor).st_uid != os.geteuid():
            os.close(descriptor)
            raise Failed("%s does not belong to this account; move it away" % self.staging)
        os.fchmod(descriptor, 0o700)
        return descriptor

    def leave(self):
        """Remove the directory if nothing is in it."""
        with contextlib.suppress(OSError):
            os.rmdir(self.staging)

    def record(self):
        """Return what is known of the image; an unreadable record is none, and the image is hashed again."""
        try:
            with open(self.record_path) as record:
                content = json.load(record)
        except (OSError, ValueError):
            content = None
        content = content if isinstance(content, dict) else {}
        return {"image": content.get("image") or {}, "kept": content.get("kept") or []}

    def write_record(self, record):
        """Store what is known of the image."""
        write_json(self.record_path, record)

    def state(self):
        """Return where the partial file came from."""
        try:
            with open(self.source) as source:
                content = json.load(source)
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) and os.path.exists(self.partial) else {}

    def discard(self):
        """Remove what was not completed."""
        for path in (self.partial, self.source, self.unpacked):
            unlink(path)

    def discard_others(self):
        """Remove what was not completed of other digests under this name."""
        for name in os.listdir(self.staging):
            parts = name[len(self.name) :].split(".") if name.startswith(self.name + ".") else []
            if len(parts) == 3 and parts[1] != self.sha256[:16] and parts[2] in ("partial", "source", "unpacked"):
                unlink(os.path.join(self.staging, name))


def identity(path):
    """Return what tells that a file is the one that was hashed: size, time of its last change, inode."""
    found = os.lstat(path)
    return {"size": found.st_size, "mtime_ns": found.st_mtime_ns, "inode": found.st_ino}


def is_same(path, record):
    """Return whether a file is the one of a record, without reading it."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and all(record.get(key) == value for key, value in identity(path).items())


def create(path):
    """Make an empty file that nobody else has, in the place of one that is there, and return it opened."""
    unlink(path)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "w+b")


def unlink(path):
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def write_json(path, content):
    """Replace a file in one step."""
    with create(path + ".new") as new:
        new.write((json.dumps(content, indent=2, sort_keys=True) + "\n").encode("utf-8"))
        new.flush()
        os.fsync(new.fileno())
    os.rename(path + ".new", path)


def sync_directory(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_space(directory, needed, reserve):
    """Raise Failed where a file system has less room than is needed, besides what stays free."""
    system = os.statvfs(directory)
    available = system.f_bavail * system.f_frsize
    if needed + reserve > available:
        raise Failed(
            "there is not enough space in %s: %d bytes are needed, and %d more have to stay free; %d are available. Free some, or use another pool"
            % (directory, needed, reserve, available)
        )
