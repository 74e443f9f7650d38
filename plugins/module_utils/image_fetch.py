# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Downloads a file over HTTPS into a partial file, and goes on where an earlier download has ended.

A redirect never leaves https, and takes the password to no other host. What was downloaded is trusted for nothing here: the
caller compares the digest.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import base64
import errno
import http.client
import os
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request

BLOCK = 1 << 18


class Failed(Exception):
    """This mirror does not deliver the file; the message says why."""


class Interrupted(Failed):
    """The transfer has ended early, and may go on from where it is."""


class Limits(object):
    """What a transfer must keep to: seconds without an answer, bytes in so many seconds, bytes altogether, seconds before a retry."""

    def __init__(self, timeout=30, stall_seconds=60, stall_bytes=64 << 10, size=64 << 30, pause=1):
        self.timeout, self.stall_seconds, self.stall_bytes = timeout, stall_seconds, stall_bytes
        self.size, self.pause = size, pause


def origin(url):
    """Return scheme, host and port of a URL."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or 443


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = 5

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        if urllib.parse.urlsplit(newurl).scheme != "https":
            raise Failed("it redirects to %s, which is not https" % newurl.split("?")[0])
        new = urllib.request.HTTPRedirectHandler.redirect_request(self, req, fp, code, msg, headers, newurl)
        # A header of this kind is not copied to the next request; the password goes only to the host that it is for.
        authorization = req.unredirected_hdrs.get("Authorization")
        if new is not None and authorization and origin(newurl) == origin(req.full_url):
            new.add_unredirected_header("Authorization", authorization)
        return new


def _opener(mirror):
    try:
        context = ssl.create_default_context(cafile=mirror.get("ca_file"), cadata=mirror.get("ca_pem"))
    except (OSError, ValueError) as error:
        raise Failed("its CA certificate cannot be used: %s" % error)
    opener = urllib.request.OpenerDirector()
    handlers = (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPSHandler(context=context),
        urllib.request.HTTPDefaultErrorHandler(),
        _Redirects(),
        urllib.request.HTTPErrorProcessor(),
    )
    for handler in handlers:
        opener.add_handler(handler)
    return opener


def _request(mirror, offset, validator):
    request = urllib.request.Request(mirror["url"])
    # An encoding on the way would make sizes and ranges those of something else.
    request.add_header("Accept-Encoding", "identity")
    request.add_header("User-Agent", "caplv")
    if mirror.get("username"):
        pair = "%s:%s" % (mirror["username"], mirror.get("password") or "")
        request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(pair.encode("utf-8")).decode("ascii"))
    if offset:
        request.add_header("Range", "bytes=%d-" % offset)
        request.add_header("If-Range", validator)
    return request


def validator_of(headers):
    """Return what a later request can name this very content by, or None."""
    etag = headers.get("ETag")
    if etag and not etag.startswith("W/"):
        return etag
    return headers.get("Last-Modified")


def position(status, headers, offset):
    """Return where in the file an answer begins, and the length of the whole file or None. Raises Failed for one that fits nothing."""
    length = headers.get("Content-Length")
    length = int(length) if length and length.isdigit() else None
    if status == 200:
        return 0, length
    match = re.match(r"bytes (\d+)-(\d+)/(\d+)\Z", headers.get("Content-Range") or "")
    if status != 206 or not match or int(match.group(1)) != offset:
        raise Failed("its answer (status %d) is not what was asked for" % status)
    return offset, int(match.group(3))


def download(mirror, path, state, limits, save, space, deadline=None):
    """Download to the file PATH, from where it ends if STATE says that the mirror was the same. Returns whether it is complete.

    MIRROR is a dict of url, username, password, ca_file and ca_pem. STATE is a dict that SAVE stores before the first byte.
    SPACE is called with the number of bytes that are still to come, before the first of them. At DEADLINE, a time of
    time.monotonic, the transfer ends for now.
    """
    offset = os.path.getsize(path) if state.get("url") == mirror["url"] and state.get("validator") else 0
    if offset and offset == state.get("length"):
        return True
    try:
        with _opener(mirror).open(_request(mirror, offset, state.get("validator")), timeout=limits.timeout) as answer:
            start, length = position(answer.getcode(), answer.headers, offset)
            if (length or 0) > limits.size:
                raise Failed("the file has %d bytes, and the limit is %d" % (length, limits.size))
            if start == 0:
                state.clear()
                state.update(url=mirror["url"], validator=validator_of(answer.headers), length=length)
            space((length or 0) - start, length)
            with open(path, "r+b") as target:
                target.truncate(start)
                save(state)
                target.seek(start)
                return _copy(answer, target, start, length, limits, deadline)
    except urllib.error.HTTPError as error:
        if error.code == 416 and offset:
            state.clear()
            raise Interrupted("it has no such range any more")
        raise Failed("it answers %d %s" % (error.code, error.reason))
    except urllib.error.URLError as error:
        raise Failed(str(error.reason))
    except http.client.HTTPException as error:
        raise Interrupted("the transfer broke off: %s" % (str(error) or type(error).__name__))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Interrupted("the transfer broke off: %s" % error)


def _copy(answer, target, size, length, limits, deadline):
    window, since = 0, time.monotonic()
    while True:
        block = answer.read1(BLOCK)
        if not block:
            break
        target.write(block)
        size, window = size + len(block), window + len(block)
        if size > limits.size:
            raise Failed("it sends more than the limit of %d bytes" % limits.size)
        now = time.monotonic()
        if now - since >= limits.stall_seconds:
            if window < limits.stall_bytes:
                raise Interrupted("the transfer has stalled: %d bytes in %d seconds" % (window, now - since))
            window, since = 0, now
        if deadline is not None and now >= deadline:
            return False
    if length is not None and size != length:
        raise Interrupted("the transfer broke off after %d of %d bytes" % (size, length))
    target.flush()
    return True
