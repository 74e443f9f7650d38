# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shows progress as the action base_image does."""

from __future__ import annotations

import time

from ansible.plugins.action import ActionBase
from ansible_collections.caplv.caplv.plugins.plugin_utils.progress import tell


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        for text in self._task.args["texts"]:
            tell(task_vars["inventory_hostname"], self._task.get_name(), text)
            time.sleep(float(self._task.args["pause"]))
        return {"changed": True}
