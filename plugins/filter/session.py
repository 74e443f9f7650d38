# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Filters over what facts.sh prints on a host."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

from ansible.errors import AnsibleFilterError

from ansible_collections.caplv.caplv.plugins.plugin_utils import session


def _parse(text):
    try:
        return session.parse(text)
    except session.IncompleteError as e:
        raise AnsibleFilterError("asking the host about session mode: %s: %r" % (e, text[:200]))


def session_facts(text):
    """Return the facts, with what follows from them: helpersetuid, the bridges allowed and denied, and the line that is odd."""
    facts = _parse(text)
    allowed, denied, odd = session.rules(facts["acl"])
    return dict(facts, helpersetuid=session.setuid(facts), allowed=allowed, denied=denied, aclodd=odd)


def session_missing(text, virt_type, bridges):
    """Return what is missing: a list of dicts of str, with piece, problem and remedy."""
    return session.missing(_parse(text), virt_type, bridges)


def session_sentence(piece):
    """Say what is missing in one sentence, as the operator does in a condition."""
    return "%s: %s; %s" % (piece["piece"], piece["problem"], piece["remedy"])


class FilterModule:
    def filters(self):
        return {"session_facts": session_facts, "session_missing": session_missing, "session_sentence": session_sentence}
