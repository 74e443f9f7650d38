# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tells the sidecar what happens in a run: see plugin_utils/progress.py for how, and operator/ansible/runner/events for what is made of it."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = """
name: run_events
type: aggregate
short_description: Events of a run for the program that started it
description:
  - Writes plays, tasks, results per host and the final counts as JSON messages to the socket whose number is in CAPLV_EVENTS_FD.
  - What a task returned is not passed on, but for the beginning of its message; of a task with no_log, nothing is.
author: The CAPLV Authors (@caplv)
"""

from ansible.plugins.callback import CallbackBase
from ansible_collections.caplv.caplv.plugins.plugin_utils.progress import NAME, TEXT, cut, send


def count(block):
    """Return how many tasks a block has, with those of the blocks in it."""
    tasks = 0
    for section in (block.block, block.rescue, block.always):
        for entry in section:
            if hasattr(entry, "block"):
                tasks += count(entry)
            elif entry.action not in ("meta", "ansible.builtin.meta", "ansible.legacy.meta"):
                tasks += 1
    return tasks


def included_block(task):
    """Return the block of the innermost include that a task came with, or None for a task of the playbook itself."""
    block = None
    parent = getattr(task, "_parent", None)
    while parent is not None:
        if hasattr(parent, "statically_loaded"):
            if not parent.statically_loaded:
                return block
        elif hasattr(parent, "block"):
            block = parent
        parent = getattr(parent, "_parent", None)
    return None


def message_of(result):
    """Return what a failed task said."""
    items = [entry for entry in result.get("results") or [] if isinstance(entry, dict) and (entry.get("failed") or entry.get("unreachable"))]
    if items:
        return "; ".join(message_of(entry) for entry in items[:5])
    parts = [result.get(key) for key in ("censored", "msg", "module_stderr", "stderr")]
    return ": ".join(cut(str(part).strip(), TEXT) for part in parts if part)


class CallbackModule(CallbackBase):
    """The callback run_events."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "caplv.caplv.run_events"

    def __init__(self, *args, **kwargs):
        super(CallbackModule, self).__init__(*args, **kwargs)
        self.plays = []
        self.static = 0
        # By host: tasks that were begun, tasks that came with includes, and the blocks that these were counted for.
        self.done = {}
        self.included = {}
        self.blocks = set()

    def v2_playbook_on_start(self, playbook):
        for play in playbook.get_plays():
            # What every play has in front and behind is not counted: it is meta tasks.
            self.static += sum(count(block) for block in play.compile())
        send({"type": "start", "known": self.static})

    def v2_playbook_on_play_start(self, play):
        self.plays.append(play)
        send({"type": "play", "play": cut(play.get_name(), NAME)})

    def v2_runner_on_start(self, host, task):
        name = host.get_name()
        self.done[name] = self.done.get(name, 0) + 1
        block = included_block(task)
        if block is not None and (name, block._uuid) not in self.blocks:
            self.blocks.add((name, block._uuid))
            self.included[name] = self.included.get(name, 0) + count(block)
        done = self.done[name]
        known = max(done, self.static + self.included.get(name, 0))
        send({"type": "task", "host": name, "task": cut(task.get_name(), NAME), "done": done, "known": known})

    def _result(self, result, outcome, message=""):
        send({"type": "result", "host": result._host.get_name(), "task": cut(result._task.get_name(), NAME), "outcome": outcome,
              "message": cut(message, TEXT)})

    def v2_runner_on_ok(self, result):
        self._result(result, "changed" if result._result.get("changed") else "ok")

    def v2_runner_on_skipped(self, result):
        self._result(result, "skipped")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        # A failure that the playbook expects is none.
        self._result(result, "ok" if ignore_errors else "failed", "" if ignore_errors else message_of(result._result))

    def v2_runner_on_unreachable(self, result):
        self._result(result, "unreachable", message_of(result._result))

    def v2_playbook_on_stats(self, stats):
        # A host that failed is out of its play, and so is one that was stopped since another has failed: only the play knows of that one.
        stopped = {name for play in self.plays for name in play._removed_hosts}
        for name in sorted(set(stats.processed) | stopped):
            counts = stats.summarize(name)
            send({"type": "stats", "host": name, "ok": counts["ok"], "changed": counts["changed"], "failed": counts["failures"],
                  "unreachable": counts["unreachable"], "skipped": counts["skipped"], "stopped": name in stopped})
        send({"type": "end"})
