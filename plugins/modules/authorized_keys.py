#!/usr/bin/python
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keys that CAPLV may log in with, as a block of an account's authorized_keys file."""

DOCUMENTATION = r"""
module: authorized_keys
short_description: Keeps a block of keys in an account's authorized_keys file
description:
  - Keeps a marked block in C(~/.ssh/authorized_keys). Lines outside of it stay as they are.
  - It works with the account's own rights, because the account owns the directory, and could put a link to a file of root there.
options:
  user:
    description: The account.
    type: str
    required: true
  lines:
    description: The lines of the block. Without any, the block goes.
    type: list
    elements: str
    default: []
  remove_file:
    description: Delete the file where nothing else is in it.
    type: bool
    default: false
  remove_directory:
    description: Delete C(~/.ssh) where it is empty.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Says what would change. An account that does not exist yet is taken for one without keys.
  diff_mode:
    support: full
    description: Shows the file before and after.
author:
  - The CAPLV Authors (@caplv)
"""

EXAMPLES = r"""
- name: The operator's key may log in
  caplv.caplv.authorized_keys:
    user: caplv
    lines:
      - restrict ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGH4Zlz7iYhcJbmgYpPLz0DUCXDQaXJBj7nJLHv1N3Xv operator
"""

RETURN = r"""
path:
  description: The file.
  type: str
  returned: always
missing:
  description: Which of V(file) and V(directory) were not there before.
  type: list
  elements: str
  returned: always
"""

import os
import pwd
import stat
import tempfile

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.caplv.caplv.plugins.module_utils.account import as_account

BEGIN = "# BEGIN CAPLV (managed; lines in here are replaced)"
END = "# END CAPLV"


def with_block(text, lines):
    """Return the text of a file with these lines in its block, which comes last where there is none yet."""
    block = [BEGIN] + lines + [END] if lines else []
    kept, inside, at = [], False, None
    for line in text.splitlines():
        if line == BEGIN:
            inside, at = True, len(kept) if at is None else at
        elif line == END:
            inside = False
        elif not inside:
            kept.append(line)
    if at is None:
        at = len(kept)
    kept[at:at] = block
    return "".join(line + "\n" for line in kept)


def check(path, uid, kind):
    """Return whether a path is there. Raises ValueError for what sshd would not accept, or what is no business of ours."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    if stat.S_IFMT(found.st_mode) != kind:
        raise ValueError("%s is not a %s" % (path, "directory" if kind == stat.S_IFDIR else "regular file"))
    if found.st_uid != uid:
        raise ValueError("%s does not belong to the account" % path)
    return True


def write(path, text):
    handle, temporary = tempfile.mkstemp(prefix=".caplv.", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def apply(home, uid, params, check_mode):
    """Change the file, with the rights of the process. Returns the module's result."""
    directory = os.path.join(home, ".ssh")
    path = os.path.join(directory, "authorized_keys")
    there = {"directory": check(directory, uid, stat.S_IFDIR)}
    there["file"] = there["directory"] and check(path, uid, stat.S_IFREG)
    before, loose = "", []
    if there["file"]:
        with open(path, encoding="utf-8", errors="surrogateescape") as f:
            before = f.read()
    # sshd refuses keys that others could change; what others may read is the account's own choice.
    for name, item, mask in (("directory", directory, 0o022), ("file", path, 0o022)):
        if there[name] and params["lines"] and os.lstat(item).st_mode & mask:
            loose.append((item, stat.S_IMODE(os.lstat(item).st_mode) & ~mask))
    after = with_block(before, params["lines"])
    removes_file = there["file"] and not after and params["remove_file"]
    removes_directory = (
        there["directory"] and params["remove_directory"] and set(os.listdir(directory)) <= ({"authorized_keys"} if removes_file else set())
    )
    result = {
        "path": path,
        "missing": [name for name in ("directory", "file") if not there[name]],
        "changed": before != after or bool(loose) or removes_file or removes_directory,
        "diff": {"before_header": path, "after_header": path, "before": before, "after": after},
    }
    if check_mode:
        return result
    if not there["directory"] and after:
        os.mkdir(directory, 0o700)
    for item, mode in loose:
        os.chmod(item, mode)
    if removes_file:
        os.unlink(path)
    elif before != after:
        write(path, after)
    if removes_directory:
        os.rmdir(directory)
    return result


def main():
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "required": True},
            "lines": {"type": "list", "elements": "str", "default": []},
            "remove_file": {"type": "bool", "default": False},
            "remove_directory": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        account = pwd.getpwnam(params["user"])
    except KeyError:
        if not module.check_mode:
            module.fail_json(msg="There is no account %s" % params["user"])
        after = with_block("", params["lines"])
        module.exit_json(
            changed=bool(after), path="~%s/.ssh/authorized_keys" % params["user"], missing=["directory", "file"], diff={"before": "", "after": after}
        )
    result = as_account(account, lambda: apply(account.pw_dir, account.pw_uid, params, module.check_mode))
    if "failure" in result:
        module.fail_json(
            msg="The keys of account %s cannot be changed: %s. Mend this on the host, and run the playbook again" % (params["user"], result["failure"])
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
