# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from plugins.module_utils import image_host


def host(answers):
    one = image_host.Host("system", "default")
    one.virsh = lambda *arguments: answers[arguments[0]]
    return one


def test_names_that_virsh_pads_are_read():
    assert host({"pool-list": " default             \n fast  \n\n"}).pools() == ["default", "fast"]


def test_the_directory_is_that_of_the_pools_description():
    xml = "<pool type='dir'><name>default</name><target><path>/srv/images</path></target></pool>"
    assert host({"pool-list": " default \n", "pool-dumpxml": xml}).directory() == "/srv/images"


def test_a_pool_that_is_not_there_is_told_from_a_daemon_that_does_not_answer():
    with pytest.raises(image_host.NoPool, match="has no pool default; run the role storage_pool first"):
        host({"pool-list": " fast \n"}).directory()
