# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs a function with the rights of an account, for files that the account owns and could put links between."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import json
import os
import traceback


def clean_environment(account):
    """Return what a session of the account has as environment, with nothing of root's in it."""
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C",
        "HOME": account.pw_dir,
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "XDG_RUNTIME_DIR": "/run/user/%d" % account.pw_uid,
    }


def as_account(account, function, umask=0o077):
    """Run a function in a process with an account's rights. Returns its result, a dict; a failure is {"failure": …}."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            os.initgroups(account.pw_name, account.pw_gid)
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            os.umask(umask)
            try:
                result = function()
            except (OSError, ValueError) as e:
                result = {"failure": str(e)}
            with os.fdopen(writer, "w") as f:
                json.dump(result, f)
            status = 0
        except BaseException:  # pylint: disable=broad-except
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as f:
        said = f.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else {"failure": "the process with the account's rights has failed"}
