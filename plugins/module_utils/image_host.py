# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""What the module asks of libvirt, and of the host, about an image."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import glob
import os
import subprocess
import time
import xml.etree.ElementTree

from . import image_use

# Pools of machines on tmpfs are of libvirt as well; one that is left without its pool is found here.
MACHINES = "/run/caplv/*/"


class Failed(Exception):
    """libvirt does not answer, or does not know the pool."""


class NoPool(Failed):
    """libvirt answers, and has no such pool."""


class Host(object):
    """The daemon of a mode, and one of its pools."""

    def __init__(self, mode, pool):
        self.mode, self.pool = mode, pool

    def virsh(self, *arguments):
        """Run virsh and return what it prints. Raises Failed."""
        try:
            process = subprocess.Popen(
                ["virsh", "--quiet", "--connect", "qemu:///" + self.mode] + list(arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env=dict(os.environ, LC_ALL="C"),
            )
        except OSError as error:
            raise Failed("virsh cannot be run: %s; run the role libvirt first" % error)
        out, err = process.communicate()
        if process.returncode:
            raise Failed("virsh %s: %s" % (arguments[0], err.decode("utf-8", "replace").strip()))
        return out.decode("utf-8", "surrogateescape")

    def pools(self):
        """Return the names of all pools, which virsh pads."""
        return [name.strip() for name in self.virsh("pool-list", "--all", "--name").split("\n") if name.strip()]

    def directory(self):
        """Return the directory of the pool."""
        if self.pool not in self.pools():
            raise NoPool("libvirt (%s) has no pool %s; run the role storage_pool first" % (self.mode, self.pool))
        path = _path(self.virsh("pool-dumpxml", self.pool))
        if not path:
            raise Failed("the pool %s has no directory, and takes no images" % self.pool)
        return path

    def users(self, path):
        """Return who uses the image at PATH. Raises Failed where that cannot be found out."""
        domains = []
        for uuid in self.virsh("list", "--all", "--uuid").split():
            try:
                xml_text = self.virsh("dumpxml", uuid)
            except Failed:
                # One that has just ended; one that is still there is asked again.
                if uuid in self.virsh("list", "--all", "--uuid").split():
                    raise
                continue
            domains.append((xml.etree.ElementTree.fromstring(xml_text).findtext("name"), xml_text))
        pools = [_path(self.virsh("pool-dumpxml", name)) for name in self.pools()]
        return image_use.users(path, domains, sorted(set(filter(None, pools))) + glob.glob(MACHINES))

    def is_stale(self, name, image):
        """Return whether libvirt does not know the volume, or with another size than the image's."""
        try:
            volume = xml.etree.ElementTree.fromstring(self.virsh("vol-dumpxml", "--pool", self.pool, name))
        except Failed:
            return True
        return image is None or volume.findtext("capacity") != str(image.get("virtual_size"))

    def refresh(self, name, image):
        """Let libvirt see what is in the pool, if it does not; returns whether it did not."""
        if image is not None and not self.is_stale(name, image):
            return False
        # While a volume of the pool is made, libvirt does not look at it anew.
        for attempt in range(30):
            try:
                self.virsh("pool-refresh", self.pool)
                return True
            except Failed as error:
                if "asynchronous jobs" not in str(error) or attempt == 29:
                    raise
            time.sleep(1)
        return True


def _path(pool):
    return xml.etree.ElementTree.fromstring(pool).findtext("target/path")
