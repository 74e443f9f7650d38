# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tells whoever started ansible-playbook what happens, in a form for programs.

CAPLV_EVENTS_FD is the number of a socket that the program inherits (SOCK_SEQPACKET): each write is one message, a JSON object of at
most MESSAGE bytes. Without it nothing is told. Workers inherit the socket too, and their messages do not mix with others'.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import json
import os

MESSAGE = 16 << 10
NAME = 256
TEXT = 1024


def cut(text, limit):
    """Return the beginning of a text, at most limit bytes of UTF-8."""
    data = str(text).encode("utf-8", "replace")
    return data[:limit].decode("utf-8", "ignore")


def send(message):
    """Tell one message. It is dropped when nobody listens any more."""
    descriptor = os.environ.get("CAPLV_EVENTS_FD", "")
    if not descriptor.isdigit():
        return
    data = json.dumps(message).encode("utf-8")
    if len(data) > MESSAGE:
        return
    try:
        os.write(int(descriptor), data)
    except OSError:
        # The run goes on; whoever started it has ended.
        pass


def tell(host, task, text):
    """Tell how far a task is on a host."""
    send({"type": "progress", "host": host, "task": cut(task, NAME), "message": cut(text, TEXT)})
