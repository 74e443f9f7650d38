# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""The repository as a collection: what is in the tarball, and that all of it is found where it is installed without a network."""

import ast
import json
import os
import pathlib
import subprocess
import tarfile

import pytest
import yaml

from conftest import REPOSITORY

ENVIRONMENTS = (".venv", ".venv-el8")
TOP_LEVEL = {"CHANGELOG.md", "FILES.json", "LICENSE", "MANIFEST.json", "README.md", "inventory", "meta", "playbooks", "plugins", "roles"}

PLAYBOOKS = sorted(path.stem for path in (REPOSITORY / "playbooks").glob("*.yml"))
MODULES = ["authorized_keys", "awx_members", "awx_object", "base_image", "host_facts"]
ROLES = sorted(path.parent.name for path in (REPOSITORY / "roles").glob("*/tasks"))


def run(program, *args, environment=".venv", cwd=REPOSITORY, **environ):
    """Run a program of a virtual environment, without the caller's configuration of Ansible. Returns what it prints."""
    done = subprocess.run(
        [REPOSITORY / environment / "bin" / program, *map(str, args)],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(cwd), "LC_ALL": "C.UTF-8", **environ},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def tarball(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tarball")
    # A hidden home, so that nothing of it is in the repository.
    run("ansible-galaxy", "collection", "build", "--output-path", directory, HOME=str(directory))
    (path,) = directory.glob("caplv-caplv-*.tar.gz")
    return path


@pytest.fixture(scope="session")
def installed(tarball, tmp_path_factory):
    """A directory of collections that holds this one."""
    directory = tmp_path_factory.mktemp("collections")
    run("ansible-galaxy", "collection", "install", tarball, "--no-deps", "--offline", "-p", directory, cwd=directory)
    return directory


def members(tarball):
    with tarfile.open(tarball) as archive:
        return archive.getmembers()


def test_the_tarball_holds_what_hosts_are_set_up_with_and_nothing_else(tarball):
    assert {pathlib.PurePath(m.name).parts[0] for m in members(tarball)} == TOP_LEVEL


def test_the_tarball_has_no_links_no_caches_and_nobodys_inventory(tarball):
    for m in members(tarball):
        assert m.isfile() or m.isdir(), m.name
        assert "__pycache__" not in m.name and not m.name.startswith("inventory/local"), m.name


def test_the_tarball_has_every_file_of_the_roles_plugins_and_playbooks_that_is_in_git(tarball):
    names = {m.name for m in members(tarball)}
    tracked = subprocess.run(
        ["git", "-C", REPOSITORY, "ls-files", "roles", "plugins", "playbooks", "inventory", "meta"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert [name for name in tracked if name not in names and not name.startswith("inventory/local/")] == []


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("kind, want", [("module", MODULES), ("inventory", ["libvirthosts"]), ("role", ROLES)])
def test_roles_and_plugins_are_found_by_their_full_names(installed, environment, kind, want):
    found = json.loads(
        run("ansible-doc", "-t", kind, "-l", "-j", "caplv.caplv", environment=environment, cwd=installed, ANSIBLE_COLLECTIONS_PATH=str(installed))
    )
    assert sorted(found) == ["caplv.caplv." + name for name in want]


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_playbooks_run_by_their_full_names(installed, environment, playbook):
    out = run(
        "ansible-playbook",
        "caplv.caplv." + playbook,
        "--syntax-check",
        "-i",
        "localhost,",
        environment=environment,
        cwd=installed,
        ANSIBLE_COLLECTIONS_PATH=str(installed),
    )
    assert out.strip() == "playbook: %s/ansible_collections/caplv/caplv/playbooks/%s.yml" % (installed, playbook)


# RHEL 8 has no newer one for Ansible to use. What runs on the controller may be newer.
@pytest.mark.parametrize("path", sorted(p for kind in ("modules", "module_utils") for p in (REPOSITORY / "plugins" / kind).glob("*.py")), ids=lambda p: p.name)
def test_what_runs_on_hosts_is_of_python_3_6(path):
    ast.parse(path.read_text(), filename=str(path), feature_version=(3, 6))


def test_there_are_playbooks():
    assert "onboard_host" in PLAYBOOKS


def test_the_requirements_are_those_of_the_collection():
    galaxy = yaml.safe_load((REPOSITORY / "galaxy.yml").read_text())
    requirements = yaml.safe_load((REPOSITORY / "collections" / "requirements.yml").read_text())
    assert {r["name"]: r["version"] for r in requirements["collections"]} == galaxy["dependencies"]
