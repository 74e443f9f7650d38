# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes what a run did to CAPLV_PROBE_RESULT, and ends it in the middle where CAPLV_PROBE_CUT says so."""

from __future__ import annotations

import json
import os
import signal
import threading

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: caplv_probe
type: aggregate
short_description: Results for tests, and a cut
description: Results for tests, and a cut.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "caplv_probe"

    def __init__(self):
        super().__init__()
        self.tasks = 0
        self.cut = int(os.environ.get("CAPLV_PROBE_CUT", "0"))
        self.delay = float(os.environ.get("CAPLV_PROBE_CUT_AFTER", "0"))
        self.changed = []
        self.failed = []

    def v2_playbook_on_task_start(self, task, is_conditional):
        self.tasks += 1
        if self.tasks == self.cut:
            # As if the machine that it runs on lost its power: nothing gets the chance to clean up.
            threading.Timer(self.delay, os.killpg, (0, signal.SIGKILL)).start()

    def v2_runner_on_ok(self, result):
        if result._result.get("changed", False):
            self.changed.append(result._task.get_name())

    def v2_runner_on_failed(self, result, ignore_errors=False):
        if not ignore_errors:
            # Of a loop, what is wrong is told by its items.
            items = [str(r.get("msg", "")) for r in result._result.get("results", []) if r.get("failed", False)]
            self.failed.append("%s: %s" % (result._task.get_name(), "; ".join(items) or result._result.get("msg", "")))

    def v2_playbook_on_stats(self, stats):
        hosts = {host: stats.summarize(host) for host in stats.processed}
        with open(os.environ["CAPLV_PROBE_RESULT"], "w") as f:
            json.dump({"hosts": hosts, "changed": self.changed, "failed": self.failed, "tasks": self.tasks}, f)
