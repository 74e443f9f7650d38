# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Filters with which verify_host judges what hosts have said."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import json
import os
import re

from ansible.errors import AnsibleFilterError

from ansible_collections.caplv.caplv.plugins.plugin_utils import findings


def _lines(text):
    try:
        return findings.lines_of(text)
    except ValueError as e:
        raise AnsibleFilterError(str(e))


def version():
    """Return the version of this collection, built or not."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    try:
        with open(os.path.join(root, "MANIFEST.json")) as f:
            return json.load(f)["collection_info"]["version"]
    except IOError:
        with open(os.path.join(root, "galaxy.yml")) as f:
            return re.search(r"(?m)^version:\s*(\S+)", f.read()).group(1)


def host_account(text):
    found = _lines(text)
    return {"uid": findings.first(found, "uid"), "home": findings.first(found, "home")}


def host_keys(text):
    return _lines(text).get("hostkey", [])


def host_findings(answers, account, mode, virt_type, bridges, pools, keys):
    try:
        return findings.evaluate(answers, account, mode, virt_type, bridges, pools, keys, version())
    except ValueError as e:
        raise AnsibleFilterError(str(e))


def finding_sentence(finding):
    return "%s: %s; %s" % (finding["check"], finding["found"], finding["remedy"])


def findings_text(findings_of):
    return "\n".join(findings.table(findings_of))


class FilterModule:
    def filters(self):
        return {
            "host_account": host_account,
            "host_keys": host_keys,
            "host_findings": host_findings,
            "finding_sentence": finding_sentence,
            "findings_text": findings_text,
            "findings_table": findings.table,
            "findings_report": findings.report,
        }
