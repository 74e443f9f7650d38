# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Every role has a molecule scenario, or several, that runs it from a bare host on."""

import re

import pytest

from conftest import REPOSITORY

ROLES = sorted(path.parent.name for path in (REPOSITORY / "roles").glob("*/tasks"))
SCENARIOS = sorted(path.parent for path in (REPOSITORY / "molecule").glob("*/molecule.yml"))
# A list of roles, or an included role that is not only removed or validated.
CONVERGED = re.compile(r"(?:role|name): caplv\.caplv\.([a-z_]+)")


def converged(scenario):
    return set(CONVERGED.findall((scenario / "converge.yml").read_text()))


@pytest.mark.parametrize("role", ROLES)
def test_a_scenario_converges_the_role_itself(role):
    assert [s.name for s in SCENARIOS if role in converged(s)], "no molecule/*/converge.yml has caplv.caplv." + role


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_the_scenario_verifies_what_it_converges(scenario):
    assert (scenario / "verify.yml").read_text().count("ansible.builtin.assert:") > 0


def test_a_scenario_onboards_a_whole_host():
    text = (REPOSITORY / "molecule" / "onboard" / "converge.yml").read_text()
    assert "playbooks/onboard_host.yml" in text
