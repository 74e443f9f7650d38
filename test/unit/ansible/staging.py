# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""A pool's directory with what stages images into it, for tests."""

import hashlib
import os
import random
import subprocess

from plugins.module_utils import image_fetch, image_stage, image_store, image_use

NAME = "node.qcow2"


def make_image(path, megabytes=2, seed=1, options=()):
    """Make a qcow2 image with random content, and return its bytes."""
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *options, str(path), "16M"], check=True)
    raw = path.with_suffix(".raw")
    raw.write_bytes(random.Random(seed).randbytes(megabytes << 20))
    subprocess.run(["qemu-io", "-f", "qcow2", "-c", "write -q -s %s 0 %dM" % (raw, megabytes), str(path)], check=True, capture_output=True)
    raw.unlink()
    return path.read_bytes()


def digest(content):
    return hashlib.sha256(content).hexdigest()


class Host:
    """A host whose libvirt has these domains (name and XML), and the pool's directory."""

    def __init__(self, directory, domains=()):
        self.directory, self.domains, self.refreshed = directory, domains, 0

    def users(self, path):
        return image_use.users(path, self.domains, [str(self.directory)])

    def is_stale(self, *_):
        return False

    def refresh(self, *_):
        self.refreshed += 1
        return False


class Pool:
    """A directory, and what is wanted of it."""

    def __init__(self, directory, ca):
        self.directory, self.ca = directory, ca
        self.host = Host(directory)
        self.failed = []
        self.limits = image_fetch.Limits(timeout=2, stall_seconds=1, stall_bytes=1 << 10, size=64 << 20, pause=0.01)

    @property
    def path(self):
        return self.directory / NAME

    def wanted(self, *urls, **changes):
        sources = [dict({"url": url, "ca_file": str(self.ca)}, **changes.get("source", {})) for url in urls]
        return {
            "sources": sources,
            "upload": changes.get("upload"),
            "size": changes.get("size", 0),
            "max_size": changes.get("max_size", 64 << 20),
            "reserve": changes.get("reserve", 0),
            "keep": changes.get("keep", 1),
            "limits": self.limits,
        }

    def store(self, sha256):
        return image_store.Store(str(self.directory), NAME, sha256)

    def stage(self, sha256, *urls, deadline=None, **changes):
        self.failed = []
        return image_stage.stage(self.store(sha256), self.wanted(*urls, **changes), self.host, self.failed, deadline)

    def leftovers(self):
        """Return kinds of files beside the image."""
        staging = self.directory / image_store.STAGING
        return sorted(name.rsplit(".", 1)[1] for name in os.listdir(staging)) if staging.is_dir() else []
