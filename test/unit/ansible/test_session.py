# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""verify_host and the operator say the same of the same host."""

import json
import pathlib
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPOSITORY / "collections"))

from ansible_collections.caplv.caplv.plugins.plugin_utils import session  # noqa: E402

CONTRACT = json.loads((REPOSITORY / "operator/session/testdata/contract.json").read_text())


@pytest.mark.parametrize("case", CONTRACT, ids=[c["name"] for c in CONTRACT])
def test_verify_host_decides_as_the_contract_with_the_operator_says(case):
    assert session.missing(session.parse(case["facts"]), case["virt_type"], case["bridges"]) == case["missing"]


@pytest.mark.parametrize("text", ["", "This account is not available.\n", "account=caplv\nuid=1001\n", "account=caplv\nend=yes\n"])
def test_an_answer_that_is_none_is_not_taken_for_a_missing_piece(text):
    with pytest.raises(session.IncompleteError):
        session.parse(text)


def test_what_is_not_printable_stays_out_of_a_report():
    facts = session.parse("account=ca\x1b[31mplv\nuid=1001\nend=yes\n")
    assert facts["account"] == "ca [31mplv"
