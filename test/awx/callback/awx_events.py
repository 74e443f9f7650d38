# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the events of a run to CAPLV_AWX_EVENTS, one JSON object a line, with the names and fields that AWX has for them."""

from __future__ import annotations

import json
import os
import re
import threading

from ansible.plugins.callback import CallbackBase
from ansible.utils.display import Display

DOCUMENTATION = """
name: awx_events
type: aggregate
short_description: Events as AWX has them
description: Events as AWX has them.
"""

# AWX cuts results at MAX_EVENT_RES_DATA.
MAX_RESULT = 700000

# What plugins print themselves becomes an event of the kind verbose.
PRINTED = re.compile(r"\[[A-Za-z0-9._-]+\] ")


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "awx_events"

    def __init__(self):
        super().__init__()
        self.file = open(os.environ["CAPLV_AWX_EVENTS"], "w", buffering=1)
        self.lock = threading.Lock()
        self.counter = 0
        self.play = ""
        original = Display.display

        def display(this, msg, *args, **kwargs):
            if PRINTED.match(str(msg)):
                self.event("verbose", stdout=str(msg))
            return original(this, msg, *args, **kwargs)

        Display.display = display

    def event(self, name, **fields):
        with self.lock:
            self.counter += 1
            self.file.write(json.dumps(dict({"counter": self.counter, "event": name, "play": self.play}, **fields), default=str) + "\n")

    def task_event(self, name, task, **fields):
        role = task._role.get_name() if task._role else ""
        self.event(name, task=task.name or task.action, role=role, **fields)

    def result_event(self, name, result, **fields):
        res = json.loads(self._dump_results(result._result))
        if len(json.dumps(res)) > MAX_RESULT:
            res = {"msg": "Output too large to display"}
        self.task_event(name, result._task, host_name=result._host.get_name(), changed=bool(res.get("changed")), event_data=dict({"res": res}, **fields))

    def v2_playbook_on_start(self, playbook):
        self.event("playbook_on_start")

    def v2_playbook_on_play_start(self, play):
        self.play = play.get_name()
        self.event("playbook_on_play_start")

    def v2_playbook_on_no_hosts_matched(self):
        self.event("playbook_on_no_hosts_matched")

    def v2_playbook_on_task_start(self, task, is_conditional):
        self.task_event("playbook_on_task_start", task)

    def v2_playbook_on_handler_task_start(self, task):
        self.task_event("playbook_on_task_start", task)

    def v2_runner_on_ok(self, result):
        self.result_event("runner_on_ok", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.result_event("runner_on_failed", result, ignore_errors=bool(ignore_errors))

    def v2_runner_on_unreachable(self, result):
        self.result_event("runner_on_unreachable", result)

    def v2_runner_on_skipped(self, result):
        self.result_event("runner_on_skipped", result)

    def v2_playbook_on_stats(self, stats):
        data = {name: dict(getattr(stats, name)) for name in ("ok", "changed", "dark", "failures", "skipped", "processed", "ignored", "rescued")}
        self.event("playbook_on_stats", event_data=data)
