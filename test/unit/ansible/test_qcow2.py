# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

import struct
import subprocess

import pytest

from plugins.module_utils import qcow2

MIB = 1 << 20


def create(path, *options):
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *options, str(path), "8M"], check=True)
    return path.read_bytes()


def judge(image):
    return qcow2.virtual_size(image[: qcow2.HEADER_SIZE], len(image))


@pytest.mark.parametrize("options", [(), ("-o", "compat=0.10"), ("-o", "extended_l2=on"), ("-o", "compression_type=zstd")])
def test_an_image_that_stands_alone_is_accepted(tmp_path, options):
    assert judge(create(tmp_path / "a.qcow2", *options)) == 8 * MIB


def test_a_backing_file_is_refused(tmp_path):
    create(tmp_path / "base.qcow2")
    image = create(tmp_path / "a.qcow2", "-b", str(tmp_path / "base.qcow2"), "-F", "qcow2")
    with pytest.raises(qcow2.Refused, match="backing file"):
        judge(image)


def test_an_external_data_file_is_refused(tmp_path):
    image = create(tmp_path / "a.qcow2", "-o", "data_file=" + str(tmp_path / "data.raw"))
    with pytest.raises(qcow2.Refused, match="external data file"):
        judge(image)


@pytest.mark.parametrize(
    ("form", "offset", "value", "reason"),
    [
        (">I", 0, 0, "not a qcow2 image"),
        (">I", 4, 4, "version of qcow2 is 4"),
        (">I", 20, 40, "cluster size"),
        (">I", 32, 1, "encrypted"),
        (">Q", 40, 1 << 40, "L1 table"),
        (">Q", 48, 1 << 40, "refcount table"),
        (">I", 60, 1 << 30, "snapshot table"),
        (">Q", 72, 1 << 1, "corrupt"),
        (">Q", 72, 1 << 5, "not known here .bits 0x20"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path, form, offset, value, reason):
    image = bytearray(create(tmp_path / "a.qcow2"))
    struct.pack_into(form, image, offset, value)
    with pytest.raises(qcow2.Refused, match=reason):
        judge(bytes(image))


@pytest.mark.parametrize("length", [4, 71, 103])
def test_a_header_that_is_cut_short_is_refused(tmp_path, length):
    with pytest.raises(qcow2.Refused, match="cut short"):
        judge(create(tmp_path / "a.qcow2")[:length])
