# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""The repository as a project of AWX: what it lists, what it finds, and the execution environment that jobs run in."""

import os
import re
import subprocess

import yaml

from conftest import REPOSITORY
from test_collection import PLAYBOOKS, run

# What AWX takes for a playbook: any YAML file with a line like this, but for some directories (awx/main/utils/ansible.py).
LINE = re.compile(r"^\s*?-?\s*?((ansible\.builtin\.)?(include|import_playbook)|hosts):")
SKIPPED = {"roles", "tasks", "group_vars", "host_vars"}


def offered():
    """Return the files of the repository that AWX offers as playbooks."""
    tracked = subprocess.run(["git", "-C", REPOSITORY, "ls-files", "-z", "*.yml", "*.yaml"], capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        parts = name.split("/")[:-1]
        if SKIPPED.intersection(parts) or any(part.startswith(".") for part in parts):
            continue
        text = (REPOSITORY / name).read_text()
        if text.startswith("$ANSIBLE_VAULT;") or any(LINE.match(line) for line in text.splitlines()):
            yield name


def test_awx_offers_our_playbooks_and_those_of_tests():
    # Nothing keeps AWX from listing playbooks of molecule and of tests; they are recognised by their directory.
    assert sorted(name for name in offered() if not name.startswith(("molecule/", "test/"))) == ["playbooks/%s.yml" % name for name in PLAYBOOKS]


def test_the_collection_is_found_in_the_project_itself():
    # AWX puts its own directories before what ansible.cfg says, and runs in the project.
    out = run(
        "ansible-doc", "-t", "inventory", "-l", "caplv.caplv", ANSIBLE_COLLECTIONS_PATH="/runner/requirements_collections:collections", HOME="/nonexistent"
    )
    assert out.startswith("caplv.caplv.libvirthosts ")
    assert os.readlink(REPOSITORY / "collections" / "ansible_collections" / "caplv" / "caplv") == "../../.."


def test_ansible_cfg_says_so_too():
    out = run("ansible-config", "dump", "--only-changed", HOME="/nonexistent")
    assert "COLLECTIONS_PATHS" in out and str(REPOSITORY / "collections") in out
    assert str(REPOSITORY / "inventory" / "local") in out


def test_an_execution_environment_can_be_built(tmp_path):
    run("ansible-builder", "create", "-f", REPOSITORY / "execution-environment.yml", "-c", tmp_path, "--output-filename", "Containerfile")
    galaxy = yaml.safe_load((tmp_path / "_build" / "requirements.yml").read_text())
    assert [c["name"] for c in galaxy["collections"]] == ["community.general"]
    assert "openssh-clients" in (tmp_path / "_build" / "bindep.txt").read_text()
    assert "python3.12" in (tmp_path / "Containerfile").read_text()
