# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Brings an image from the first source that has it: complete, unpacked, with the right digest, and judged."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import contextlib
import errno
import os
import time
import urllib.parse

from . import image_check, image_fetch, image_store, image_stream

TRIES = 3
PROGRESS = 16 << 20
SPACE_STEP = 64 << 20


class Failed(Exception):
    """No source has delivered the image, or the image is not one to use; the message says why."""


class WrongContent(Exception):
    """This source has something else than the image."""


class Unfinished(Exception):
    """There is more to do, and time is up; PROGRESS says how far it is."""

    def __init__(self, **progress):
        Exception.__init__(self)
        self.progress = progress


def in_order(sources, state, failed):
    """Return the sources to try: the one that a partial file is from comes first, and one that has failed not again."""
    left = [s for s in sources if s["url"] not in [f["url"] for f in failed]]
    return sorted(left, key=lambda s: s["url"] != state.get("url"))


def bring(store, wanted, failed, deadline):
    """Return the path of the image in the staging directory, its virtual size and its source.

    WANTED has sources, size, max_size, reserve, limits and upload, as in the module. FAILED is a list of url and reason of
    sources that are not to be asked again, and is made longer. Raises Failed or Unfinished; an image that fails leaves nothing.
    """
    try:
        return _bring(store, wanted, failed, deadline)
    finally:
        # What cannot be resumed is not left.
        if not store.state():
            image_store.unlink(store.partial)


def _bring(store, wanted, failed, deadline):
    for source in in_order(wanted["sources"], store.state(), failed):
        try:
            packed = _fetch(store, source, wanted, deadline)
            path = _unpack(store, packed, wanted)
            return path, _judge(store, path), source["url"]
        except (image_fetch.Failed, image_stream.Failed, WrongContent) as error:
            if not isinstance(error, image_fetch.Failed):
                store.discard()
            failed.append({"url": source["url"], "reason": str(error)})
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            store.discard()
            raise Failed("%s is full, or its quota is used up: %s. Free some space, or use another pool" % (store.directory, error.strerror))
        except image_store.Failed:
            image_store.unlink(store.unpacked)
            raise
    raise Failed("no source has delivered the image: %s" % "; ".join("%s: %s" % (f["url"], f["reason"]) for f in failed))


def _fetch(store, source, wanted, deadline):
    """Return the path of the source's file, which is one of the host or complete in the partial file."""
    parts = urllib.parse.urlsplit(source["url"])
    if parts.scheme == "file":
        path = urllib.parse.unquote(parts.path)
        if not os.path.isfile(path):
            raise image_fetch.Failed("there is no such file, or this account cannot see it")
        return path
    if parts.scheme == "upload":
        _receive(store, source["url"], wanted)
    else:
        _download(store, source, wanted, deadline)
    return store.partial


def _room(store, wanted):
    def check(coming, length):
        # What is packed needs room twice; how much the second time is known only where it was said.
        unpacked = wanted["size"] if wanted["size"] and wanted["size"] != length else 0
        image_store.require_space(store.directory, coming + unpacked, wanted["reserve"])

    return check


def _receive(store, url, wanted):
    size = wanted["upload"]["size"]
    state = store.state()
    if state.get("url") != url:
        _room(store, wanted)(size, size)
        image_store.create(store.partial).close()
        image_store.write_json(store.source, {"url": url, "length": size})
    done = os.path.getsize(store.partial)
    if done < size:
        raise Unfinished(phase="upload", done=done, total=size, path=store.partial, staging=store.staging)


def _download(store, source, wanted, deadline):
    state = store.state()
    if not state:
        image_store.create(store.partial).close()
    tries = 0
    while True:
        before = os.path.getsize(store.partial)
        try:
            if image_fetch.download(
                source, store.partial, state, wanted["limits"], lambda s: image_store.write_json(store.source, s), _room(store, wanted), deadline
            ):
                return
        except image_fetch.Interrupted:
            # A mirror that drips is given up for the next one.
            tries = 0 if os.path.getsize(store.partial) >= before + PROGRESS else tries + 1
            if tries >= TRIES:
                raise
            if deadline is None or time.monotonic() < deadline:
                time.sleep(2**tries * wanted["limits"].pause)
                continue
        raise Unfinished(phase="download", done=os.path.getsize(store.partial), total=state.get("length"), url=source["url"])


def _unpack(store, packed, wanted):
    """Return the path of the unpacked image, which has the right digest. What is not packed is taken as it is."""
    with open(packed, "rb") as source:
        in_place = packed == store.partial and image_stream.compression(source.read(6)) == "raw"
        source.seek(0)
        if in_place:
            found = image_check.digest(packed)
        else:
            needed = wanted["size"] or os.fstat(source.fileno()).st_size
            image_store.require_space(store.directory, needed, wanted["reserve"])
            with image_store.create(store.unpacked) as target:
                found = image_stream.unpack(source, target, wanted["max_size"], _watch(store, wanted["reserve"]))[0]
    if found != store.sha256:
        raise WrongContent("its image has the sha256 %s, and %s is wanted" % (found, store.sha256))
    return packed if in_place else store.unpacked


def _watch(store, reserve):
    """Return a function that stops a growing file before it takes what has to stay free."""
    checked = [0]

    def progress(size):
        if size - checked[0] >= SPACE_STEP:
            checked[0] = size
            image_store.require_space(store.directory, 0, reserve)

    return progress


def _judge(store, path):
    # For the account without rights that looks at it; nobody else reaches the directory.
    os.chmod(path, 0o644)
    try:
        return image_check.inspect(path)
    except image_check.Failed as error:
        with contextlib.suppress(OSError):
            store.discard()
        raise Failed(str(error))
