# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs the module base_image in slices, shows how far it is, and pushes a file of the controller piece by piece.

A piece goes over the connection that is there, straight to its place: there is no second copy on the host. A slice leaves nothing
running on the host, so that an interrupted playbook has ended there as well.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import os
import shlex
import socket
import time

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.caplv.caplv.plugins.plugin_utils.progress import tell

SLICE = 10
CHUNK = 16 << 20

display = Display()


def describe(progress):
    """Return the sentence for what a module has said of how far it is."""
    text = progress["phase"]
    if progress.get("total"):
        text += " %d %% of %d MiB" % (100 * progress["done"] // progress["total"], progress["total"] >> 20)
    elif "done" in progress:
        text += " %d MiB" % (progress["done"] >> 20)
    return text + (", from %s" % progress["url"].split("?")[0] if progress.get("url") else "")


class ActionModule(ActionBase):
    """The action base_image."""

    def run(self, tmp=None, task_vars=None):
        super(ActionModule, self).run(tmp, task_vars)
        args = dict(self._task.args, slice=SLICE)
        source = args.pop("src", None)
        if source:
            if args.get("sources"):
                return {"failed": True, "msg": "src and sources exclude each other: an image is pushed, or it is fetched by the host"}
            try:
                source = self._find_needle("files", source)
                args["upload"] = self._identity(source)
            except Exception as error:  # pylint: disable=broad-except
                return {"failed": True, "msg": "The file to push cannot be read: %s" % error}
        while True:
            result = self._execute_module(module_name="caplv.caplv.base_image", module_args=args, task_vars=task_vars)
            if result.get("failed") or result.get("finished", True) or "progress" not in result:
                return result
            progress = result["progress"]
            text = "%s: %s" % (args["name"], describe(progress))
            display.display("[%s] %s" % (task_vars.get("inventory_hostname"), text))
            tell(task_vars.get("inventory_hostname"), self._task.get_name(), text)
            args["failed_sources"] = result.get("failed_sources", [])
            if progress["phase"] == "upload":
                failure = self._push(source, progress, args)
                if failure:
                    return failure

    @staticmethod
    def _identity(source):
        found = os.stat(source)
        return {"id": "%s:%s:%d:%d" % (socket.gethostname(), os.path.realpath(source), found.st_size, found.st_mtime_ns), "size": found.st_size}

    def _push(self, source, progress, args):
        """Push pieces from where the host has ended, for one slice. Returns a failed result, or None."""
        until = time.monotonic() + SLICE
        offset = progress["done"]
        with open(source, "rb") as image:
            image.seek(offset)
            while offset < progress["total"]:
                piece = image.read(min(CHUNK, progress["total"] - offset))
                if not piece:
                    return {"failed": True, "msg": "%s has become shorter while it was pushed" % source}
                # Another run may push the same file: it writes the same bytes to the same place, and none that is finished already.
                command = ["flock", "--shared", progress["staging"], "dd", "of=" + progress["path"], "bs=1M", "status=none", "iflag=fullblock"]
                command += ["oflag=seek_bytes", "seek=%d" % offset, "conv=notrunc,nocreat"]
                if args.get("mode") == "session":
                    command = ["runuser", "-u", args.get("user", "caplv"), "--"] + command
                done = self._low_level_execute_command("cd / && " + " ".join(shlex.quote(word) for word in command), in_data=piece)
                if done["rc"] != 0:
                    # Somebody else has finished it: the module knows.
                    if "No such file" in done["stderr"]:
                        return None
                    return {"failed": True, "msg": "A piece of %s cannot be written to %s: %s" % (source, progress["path"], done["stderr"].strip())}
                offset += len(piece)
                if time.monotonic() >= until:
                    return None
        return None
