# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
"""The REST API of AWX, as far as modules need it: objects that are found by what identifies them, and lists below them."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import json
import time
from urllib.error import HTTPError
from urllib.parse import urlencode

from ansible.module_utils.urls import open_url

# How to reach AWX, in every module.
ARGUMENTS = {
    "url": {"type": "str", "required": True},
    "api_prefix": {"type": "str", "default": "/api/v2"},
    "token": {"type": "str", "required": True, "no_log": True},
    "ca_path": {"type": "path"},
    "timeout": {"type": "int", "default": 30},
}

# Fields that AWX keeps as a text of JSON or YAML.
TEXTS = ("extra_vars", "variables", "source_vars")


class AwxError(Exception):
    """What AWX did not do, and why; without the token."""


class Client(object):
    """Makes requests. Certificates are always verified."""

    def __init__(self, params):
        if not params["url"].startswith("https://"):
            raise AwxError("url must begin with https://, since the token travels along")
        self.base = params["url"].rstrip("/") + "/" + params["api_prefix"].strip("/") + "/"
        self.token = params["token"]
        self.ca_path = params["ca_path"]
        self.timeout = params["timeout"]

    def request(self, method, path, body=None):
        """Return the decoded answer, None for an empty one. Raises AwxError."""
        try:
            answer = open_url(
                self.base + path,
                method=method,
                data=None if body is None else json.dumps(body),
                headers={"Authorization": "Bearer " + self.token, "Content-Type": "application/json"},
                timeout=self.timeout,
                ca_path=self.ca_path,
                # To another host, a redirect would take the token along.
                follow_redirects="none",
            )
            content = answer.read()
        except HTTPError as e:
            raise AwxError("AWX answers %s %s with %d: %s" % (method, path.split("?")[0], e.code, explain(e)))
        except Exception as e:  # pylint: disable=broad-except
            raise AwxError("AWX does not answer %s %s: %s" % (method, path.split("?")[0], e))
        if not content.strip():
            return None
        try:
            return json.loads(content)
        except ValueError:
            raise AwxError("what answers at %s is not AWX's API: check url and api_prefix" % self.base)

    def all(self, path, query=None):
        """Return all objects of a list."""
        found, page = [], 1
        while True:
            answer = self.request("GET", "%s?%s" % (path, urlencode(sorted(dict(query or {}, page=page, page_size=200).items()))))
            found += answer["results"]
            if not answer.get("next"):
                return found
            page += 1

    def find(self, resource, identity):
        """Return the one object with these fields, or None."""
        found = self.all(resource + "/", dict((name, as_query(value)) for name, value in identity.items()))
        if len(found) > 1:
            raise AwxError("AWX has %d of %s with %s" % (len(found), resource, json.dumps(identity, sort_keys=True)))
        return found[0] if found else None

    def wait(self, resource, number, limit):
        """Wait until an object that AWX is working on is done, such as a project that is fetched. Return it."""
        until = time.time() + limit
        while True:
            found = self.request("GET", "%s/%d/" % (resource, number))
            if found.get("status") in ("successful", "ok"):
                return found
            if found.get("status") in ("failed", "error", "canceled", "missing"):
                raise AwxError("%s %s ended with the status %s: look at it in AWX" % (resource, found.get("name"), found["status"]))
            if time.time() > until:
                raise AwxError("%s %s has the status %s for %d s" % (resource, found.get("name"), found.get("status"), limit))
            time.sleep(0.5)


def explain(error):
    """Return what an error of HTTP says, in one short line."""
    try:
        body = json.loads(error.read())
    except Exception:  # pylint: disable=broad-except
        return error.reason
    text = body.get("detail") if isinstance(body, dict) and isinstance(body.get("detail"), str) else json.dumps(body, sort_keys=True)
    return " ".join(text.split())[:500]


def as_query(value):
    """Return a value as a query of AWX has it."""
    return {True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value


def as_sent(fields):
    """Return fields as AWX takes them: variables as text."""
    return dict((name, json.dumps(value, sort_keys=True) if name in TEXTS and isinstance(value, dict) else value) for name, value in fields.items())


def differs(wanted, found):
    """Return the fields of a dictionary that another one has otherwise."""
    return dict((name, value) for name, value in wanted.items() if plain(name, value) != plain(name, found.get(name)))


def plain(name, value):
    """Return a value as it is compared: a text of variables by what it says."""
    if name in TEXTS and not isinstance(value, dict):
        try:
            return json.loads(value or "{}")
        except (TypeError, ValueError):
            return value
    return value
