# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Lets tests import what needs nothing of Ansible: `from plugins.plugin_utils import …`."""

import pathlib
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]

sys.path.insert(0, str(REPOSITORY))
