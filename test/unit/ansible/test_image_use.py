# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

import subprocess
import time

import pytest

from plugins.module_utils import image_use
from staging import make_image


@pytest.fixture(name="image")
def _image(tmp_path):
    make_image(tmp_path / "base.qcow2", megabytes=1)
    return tmp_path / "base.qcow2"


def overlay(path, base):
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base), "-F", "qcow2", str(path)], check=True)
    return path


def domain(*files):
    return "<domain><devices>%s</devices></domain>" % "".join("<disk><source file='%s'/></disk>" % f for f in files)


def users(image, domains=(), directories=()):
    return image_use.users(str(image), list(domains), [str(d) for d in directories])


def test_nobody_uses_a_new_image(image):
    assert users(image, [("other", domain("/missing"))], [image.parent]) == []


def test_a_domain_that_is_off_uses_what_is_below_its_disk(tmp_path, image):
    (tmp_path / "disks").mkdir()
    middle = overlay(tmp_path / "disks" / "middle.qcow2", image)
    top = overlay(tmp_path / "disks" / "top.qcow2", middle)
    assert users(image, [("worker", domain(top))]) == ["domain worker"]


def test_a_domain_names_the_image_through_a_link(tmp_path, image):
    (tmp_path / "link").symlink_to(image)
    assert users(image, [("worker", domain(tmp_path / "link"))]) == ["domain worker"]


def test_a_running_domains_chain_is_in_its_xml(image):
    xml = "<domain><devices><disk><source dev='/dev/null'/><backingStore><source file='%s'/></backingStore></disk></devices></domain>" % image
    assert users(image, [("worker", xml)]) == ["domain worker"]


@pytest.mark.parametrize("base", ["base.qcow2", "file:base.qcow2"])
def test_a_volume_names_the_image_by_a_relative_path(image, base):
    subprocess.run(["qemu-img", "create", "-q", "-u", "-f", "qcow2", "-b", base, "-F", "qcow2", "top.qcow2", "16M"], cwd=image.parent, check=True)
    assert users(image, directories=[image.parent]) == ["volume %s/top.qcow2" % image.parent]


def test_files_that_name_each_other_end(tmp_path, image):
    one, two = tmp_path / "one.qcow2", tmp_path / "two.qcow2"
    for path, base in ((one, two), (two, one)):
        subprocess.run(["qemu-img", "create", "-q", "-u", "-f", "qcow2", "-b", str(base), "-F", "qcow2", str(path), "1M"], check=True)
    assert users(image, directories=[tmp_path]) == []


def test_qemu_holds_an_image_that_is_read_only_below_its_disk(tmp_path, image):
    (tmp_path / "disks").mkdir()
    top = overlay(tmp_path / "disks" / "top.qcow2", image)
    with subprocess.Popen(["qemu-io", "-f", "qcow2", str(top)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + 20
        while not image_use.is_locked(str(image)) and time.monotonic() < until:
            time.sleep(0.05)
        assert image_use.is_locked(str(image))
        assert users(image) == ["process %d (qemu-io)" % process.pid]
        process.stdin.close()
        process.wait()
    assert not image_use.is_locked(str(image)) and users(image) == []
