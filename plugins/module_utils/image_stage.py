# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Puts an image into a pool in one step, or takes it away, and never while somebody uses it."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import contextlib
import os
import shutil
import stat

from . import image_check, image_host, image_source, image_store


class Failed(Exception):
    """The image cannot be put there; the message says why and what to do."""


def situation(store):
    """Return what there is to do, and the record: "nothing", "adopt", "install" or "replace". Raises Failed for a file that is not ours."""
    record = store.record()
    image = record["image"]
    if not os.path.lexists(store.path):
        return "install", record
    if not stat.S_ISREG(os.lstat(store.path).st_mode):
        raise Failed("%s is not a regular file; move it away, or give the image another name" % store.path)
    same = image_store.is_same(store.path, image)
    if same and image.get("sha256") == store.sha256:
        return "nothing", record
    if not same and image_check.digest(store.path) == store.sha256:
        return "adopt", record
    if not image.get("ours"):
        raise Failed(
            "%s was not put there by this role, and has another sha256 than %s; move it away, or give the image another name" % (store.path, store.sha256)
        )
    return "replace", record


def refuse_users(store, host):
    """Raise Failed where the image in place is used."""
    users = host.users(store.path)
    if users:
        raise Failed(
            "%s is in use by %s; it is not replaced under them. Give the new image another name, or delete these first" % (store.path, ", ".join(users))
        )


def stage(store, wanted, host, failed, deadline=None, lock_seconds=10):
    """Put the image in place. Returns changed, and before and after for a diff. Raises what image_source and image_store raise, and Failed."""
    try:
        with store.lock(lock_seconds):
            try:
                return _stage(store, wanted, host, failed, deadline)
            except BaseException:
                store.leave()
                raise
    except image_store.Busy:
        raise image_source.Unfinished(phase="another run works on this pool")


def predict(store, host):
    """Return what stage would, and change nothing."""
    todo, record = situation(store)
    if todo == "replace":
        refuse_users(store, host)
    stale = todo in ("nothing", "adopt") and host.is_stale(store.name, record["image"])
    return dict(_result(store, stale or todo in ("install", "replace"), record["image"]), todo="refresh" if stale and todo == "nothing" else todo)


def _stage(store, wanted, host, failed, deadline):
    todo, record = situation(store)
    before = record["image"]
    if todo == "adopt":
        ours = bool(before.get("ours"))
        try:
            size = image_check.inspect(store.path)
        except image_check.Failed as error:
            raise Failed("%s: %s" % (store.path, error))
        record["image"] = dict(image_store.identity(store.path), sha256=store.sha256, virtual_size=size, ours=ours, source=before.get("source"))
        store.write_record(record)
    if todo in ("nothing", "adopt"):
        store.discard()
        return _result(store, host.refresh(store.name, record["image"]), before)
    if not shutil.which("qemu-img"):
        raise Failed("there is no qemu-img to check images with; install the package qemu-utils or qemu-img")
    if todo == "replace":
        refuse_users(store, host)
    path, entry = _kept(store, record)
    if not path:
        path, size, source = image_source.bring(store, wanted, failed, deadline)
        entry = {"sha256": store.sha256, "virtual_size": size, "source": source, "ours": True}
    _install(store, record, path, entry, wanted["keep"], host)
    host.refresh(store.name, record["image"])
    return _result(store, True, before)


def _kept(store, record):
    """Return the path and the record of a predecessor that is the wanted image, and is still as it was."""
    for entry in record["kept"]:
        if entry.get("sha256") == store.sha256 and image_store.is_same(store.kept(store.sha256), entry):
            return store.kept(store.sha256), entry
    return None, None


def _install(store, record, path, entry, keep, host):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    before = record["image"]
    if os.path.lexists(store.path):
        # Again, because a machine may have come while the image did.
        refuse_users(store, host)
        if keep and image_store.is_same(store.path, before):
            image_store.unlink(store.kept(before["sha256"]))
            os.link(store.path, store.kept(before["sha256"]))
            record["kept"].append(before)
    record["kept"] = [e for e in record["kept"] if e.get("sha256") != store.sha256]
    surplus = record["kept"][: max(0, len(record["kept"]) - keep)]
    record["kept"] = record["kept"][len(surplus) :]
    record["image"] = dict(entry, **image_store.identity(path))
    # Before the file itself: a run that ends between the two finds that the file in place is ours to replace.
    store.write_record(record)
    os.rename(path, store.path)
    image_store.sync_directory(store.directory)
    for old in surplus:
        image_store.unlink(store.kept(old["sha256"]))
    store.discard()
    store.discard_others()


def remove(store, host, leave_used, dry=False):
    """Take away what was staged. Returns changed and left: users of an image that stays, with LEAVE_USED, or why it stays."""
    if not os.path.isdir(store.staging):
        return {"changed": False, "left": []}
    if dry:
        return _remove(store, host, leave_used, dry)
    with store.lock(60):
        try:
            result = _remove(store, host, leave_used, dry)
        finally:
            store.leave()
    if result["changed"]:
        # After the staging directory has gone, which libvirt lists too. A pool that does not run looks at it when it starts.
        with contextlib.suppress(image_host.Failed):
            host.refresh(store.name, None)
    return result


def _remove(store, host, leave_used, dry):
    image = store.record()["image"]
    ours = bool(image.get("ours")) and os.path.lexists(store.path)
    users = host.users(store.path) if ours else []
    if users and not leave_used:
        raise Failed("%s is in use by %s; delete these first" % (store.path, ", ".join(users)))
    files = [os.path.join(store.staging, name) for name in os.listdir(store.staging) if _belongs(store, name)]
    if ours and not users:
        files.insert(0, store.path)
    if not dry:
        for path in files:
            image_store.unlink(path)
    return {"changed": bool(files), "left": users}


def _belongs(store, name):
    if name in (store.name + ".json", store.name + ".json.new"):
        return True
    parts = name[len(store.name) :].split(".") if name.startswith(store.name + ".") else []
    return len(parts) >= 3 and len(parts[1]) == 16 and parts[2] in ("partial", "source", "unpacked", "kept")


def _result(store, changed, before):
    return {
        "changed": changed,
        "finished": True,
        "path": store.path,
        "diff": {"before": {"sha256": before.get("sha256")} if before else {}, "after": {"sha256": store.sha256}},
    }
