# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

import gzip
import hashlib
import io
import lzma
import random
import subprocess

import pytest

from plugins.module_utils import image_stream

CONTENT = random.Random(1).randbytes(300_000) + bytes(3 << 20)


def zstd(content):
    return subprocess.run(["zstd", "-cq"], input=content, stdout=subprocess.PIPE, check=True).stdout


PACK = {"gzip": gzip.compress, "xz": lzma.compress, "zstd": zstd, "raw": bytes}


def unpack(path, packed, limit=len(CONTENT)):
    path.write_bytes(packed)
    target = io.BytesIO()
    with path.open("rb") as source:
        return image_stream.unpack(source, target, limit), target.getvalue()


@pytest.mark.parametrize("name", PACK)
def test_the_first_bytes_tell_the_compression(tmp_path, name):
    packed = PACK[name](CONTENT)
    assert image_stream.compression(packed[:6]) == name
    (digest, size), content = unpack(tmp_path / "image", packed)
    assert content == CONTENT
    assert (digest, size) == (hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


@pytest.mark.parametrize("name", ["gzip", "xz", "zstd"])
def test_several_streams_in_one_file_are_one_image(tmp_path, name):
    packed = PACK[name](CONTENT[:1000]) + PACK[name](CONTENT[1000:])
    assert unpack(tmp_path / "image", packed)[1] == CONTENT


@pytest.mark.parametrize("name", ["gzip", "xz", "zstd"])
def test_a_file_that_is_cut_short_fails(tmp_path, name):
    with pytest.raises(image_stream.Failed, match="cut short"):
        unpack(tmp_path / "image", PACK[name](CONTENT)[:-20])


@pytest.mark.parametrize("name", ["gzip", "xz", "zstd"])
def test_a_damaged_file_fails(tmp_path, name):
    packed = bytearray(PACK[name](CONTENT))
    packed[150_000] ^= 0xFF
    with pytest.raises(image_stream.Failed, match="damaged"):
        unpack(tmp_path / "image", bytes(packed))


@pytest.mark.parametrize("name", PACK)
def test_an_image_above_the_limit_is_stopped(tmp_path, name):
    path = tmp_path / "image"
    path.write_bytes(PACK[name](CONTENT))
    target = io.BytesIO()
    with path.open("rb") as source, pytest.raises(image_stream.Failed, match="larger than the limit of 500000 bytes"):
        image_stream.unpack(source, target, 500_000)
    assert len(target.getvalue()) <= 500_000


def test_a_missing_zstd_is_named(tmp_path, monkeypatch):
    packed = zstd(CONTENT)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(image_stream.Failed, match="install the package zstd"):
        unpack(tmp_path / "image", packed)
