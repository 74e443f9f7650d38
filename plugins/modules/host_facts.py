#!/usr/bin/python
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: host_facts
short_description: Keeps the record of what CAPLV has set up on a host
description:
  - Keeps C(/etc/ansible/facts.d/caplv.fact), a file of local facts in JSON that every account may read.
  - It says how the host is set up, and under C(added) what was not there before, so that off-boarding removes that and nothing else.
  - The file is replaced in one step. It goes when nothing is left in it, with directories that this module made.
options:
  facts:
    description: Top-level facts to set. A value of V(null) removes a fact.
    type: dict
    default: {}
  added:
    description:
      - What is about to be added to the host, and how it was before. Write it before the change itself.
      - What is recorded already stays as it is, because it was true before the first change; a run that was interrupted
        between record and change finds its own record. A dict is merged key by key, at any depth; a list is made longer.
    type: dict
    default: {}
  removed:
    description: >-
      Paths below C(added), with dots between their parts, that have been put back as they were and are forgotten. A path to an element
      of a list ends in the element itself, in brackets, as in C(storage_pools[default]).
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: Says what would change.
  diff_mode:
    support: full
    description: Shows the file before and after.
author:
  - The CAPLV Authors (@caplv)
"""

EXAMPLES = r"""
- name: Record that the account is new
  caplv.caplv.host_facts:
    added:
      account:
        name: caplv
        created: true

- name: Say how the host is set up
  caplv.caplv.host_facts:
    facts:
      mode: session
"""

RETURN = r"""
caplv:
  description: What the file holds now, or would hold.
  type: dict
  returned: always
"""

import copy
import json
import os
import stat
import tempfile

from ansible.module_utils.basic import AnsibleModule

PATH = "/etc/ansible/facts.d/caplv.fact"


def read(path):
    """Return what the file holds, {} where there is none. Raises ValueError for anything that is not a JSON object."""
    try:
        with open(path) as f:
            content = json.load(f)
    except FileNotFoundError:
        return {}
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def merge_first_wins(into, what):
    """Add to a dict what it does not say yet. Lists are made longer by elements that they lack."""
    for key, value in what.items():
        if key not in into:
            into[key] = copy.deepcopy(value)
        elif isinstance(into[key], dict) and isinstance(value, dict):
            merge_first_wins(into[key], value)
        elif isinstance(into[key], list) and isinstance(value, list):
            into[key].extend(e for e in value if e not in into[key])


def remove(tree, path):
    """Remove what a path names, and dicts and lists that are empty then."""
    element = None
    if path.endswith("]"):
        path, element = path[:-1].split("[", 1)
    head, dot, rest = path.partition(".")
    if head not in tree:
        return
    if dot:
        if isinstance(tree[head], dict):
            remove(tree[head], rest if element is None else "%s[%s]" % (rest, element))
    elif element is None:
        del tree[head]
        return
    elif isinstance(tree[head], list):
        tree[head] = [e for e in tree[head] if e != element]
    elif isinstance(tree[head], dict):
        tree[head].pop(element, None)
    if tree[head] in ({}, []):
        del tree[head]


def change(old, facts, added, removed):
    """Return the new content of the file."""
    new = copy.deepcopy(old)
    for key, value in facts.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = value
    record = new.setdefault("added", {})
    for path in removed:
        remove(record, path)
    merge_first_wins(record, added)
    if not record:
        del new["added"]
    return new


def make_directories(path):
    """Make the directories above a file. Returns those that were not there, outermost first."""
    missing = []
    directory = os.path.dirname(path)
    while not os.path.isdir(directory):
        missing.insert(0, directory)
        directory = os.path.dirname(directory)
    for directory in missing:
        os.mkdir(directory)
        os.chmod(directory, 0o755)
    return missing


def write(module, path, content):
    directory = os.path.dirname(path)
    handle, temporary = tempfile.mkstemp(prefix=".caplv.", dir=directory)
    with os.fdopen(handle, "w") as f:
        f.write(content)
        f.flush()
        os.fsync(f.fileno())
    os.chmod(temporary, 0o644)
    module.atomic_move(temporary, path)
    os.chmod(path, 0o644)


def main():
    module = AnsibleModule(
        argument_spec={
            "facts": {"type": "dict", "default": {}},
            "added": {"type": "dict", "default": {}},
            "removed": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    try:
        old = read(PATH)
    except (OSError, ValueError) as e:
        module.fail_json(msg="%s cannot be read: %s. Mend it, or move it away and run the playbook again" % (PATH, e))
    new = change(old, module.params["facts"], module.params["added"], module.params["removed"])
    directories = new.pop("made_directories", [])
    # What is left when everything was put back is nothing but this file's own directories.
    empty = not new
    if directories:
        new["made_directories"] = directories
    text = "" if empty else json.dumps(new, indent=2, sort_keys=True) + "\n"
    exists = os.path.lexists(PATH)
    loose = exists and (stat.S_IMODE(os.lstat(PATH).st_mode) != 0o644 or os.lstat(PATH).st_uid != 0)
    changed = exists if empty else (old != new or not exists or loose)
    if changed and not module.check_mode:
        if empty:
            os.unlink(PATH)
            for directory in reversed(directories):
                try:
                    os.rmdir(directory)
                except OSError:
                    break
        else:
            made = make_directories(PATH)
            if made:
                new["made_directories"] = made
                text = json.dumps(new, indent=2, sort_keys=True) + "\n"
            write(module, PATH, text)
    before = json.dumps(old, indent=2, sort_keys=True) + "\n" if old else ""
    module.exit_json(changed=changed, caplv={} if empty else new, diff={"before_header": PATH, "after_header": PATH, "before": before, "after": text})


if __name__ == "__main__":
    main()
