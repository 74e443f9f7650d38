# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""The inventories that the repository has."""

import json
import shutil

import pytest
import yaml

from conftest import REPOSITORY
from test_collection import ENVIRONMENTS, run

INVENTORY = REPOSITORY / "inventory"


def listing(source, environment, tmp_path):
    """Return what ansible-inventory makes of a source, which it must read without a warning."""
    return json.loads(
        run("ansible-inventory", "-i", source, "--list", environment=environment, HOME=str(tmp_path), ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED="true")
    )


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_fresh_clone_has_the_groups_and_no_hosts(environment, tmp_path):
    source = tmp_path / "local"
    source.mkdir()
    for name in (".gitignore", "groups.yml"):
        shutil.copy(INVENTORY / "local" / name, source)
    content = listing(source, environment, tmp_path)
    assert content["_meta"]["hostvars"] == {}
    assert {"system_hosts", "session_hosts"} <= set(content["all"]["children"])


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_example_can_be_copied_there(environment, tmp_path):
    source = tmp_path / "local"
    shutil.copytree(INVENTORY / "local", source, ignore=shutil.ignore_patterns("[!.g]*"))
    shutil.copytree(INVENTORY / "example", source, dirs_exist_ok=True)
    content = listing(source, environment, tmp_path)
    hosts = content["_meta"]["hostvars"]
    assert len(hosts) == 5
    # Hosts get the variables of both of their groups.
    lab = hosts["lab-01.example.com"]
    assert (lab["caplv_mode"], lab["caplv_virt_type"], lab["caplv_bridges"]) == ("session", "qemu", ["br0", "br-storage"])
    assert hosts["standby-03.example.com"]["ansible_host"] == "2001:db8::13"
    assert sorted(content["site_south"]["hosts"]) == ["lab-01.example.com", "standby-03.example.com"]


def test_the_example_has_only_variables_that_a_role_documents():
    documented = set()
    for path in REPOSITORY.glob("roles/*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            documented |= set(entry.get("options") or {})
    used = set()
    for path in (INVENTORY / "example" / "group_vars").iterdir():
        used |= {name for name in yaml.safe_load(path.read_text()) if name.startswith("caplv_")}
    assert used - documented == set()


def test_hosts_of_ones_own_stay_out_of_the_repository():
    ignored = (INVENTORY / "local" / ".gitignore").read_text().splitlines()
    assert [line for line in ignored if not line.startswith("#")] == ["*", "!.gitignore", "!groups.yml"]
