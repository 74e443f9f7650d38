# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""The half of base_image that runs on the controller. What it would send to the host runs here, in a shell."""

import os
import subprocess
import sys

import pytest

from conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "collections"))

from ansible_collections.caplv.caplv.plugins.action import base_image  # noqa: E402

MODE = {"mode": "system"}


@pytest.fixture
def action(tmp_path):
    """An action whose host is a directory with an empty partial file."""
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "partial").write_bytes(b"")
    one = base_image.ActionModule.__new__(base_image.ActionModule)
    one.commands = []

    def execute(command, in_data):
        one.commands.append(command)
        done = subprocess.run(["sh", "-c", command], input=in_data, capture_output=True, check=False)
        return {"rc": done.returncode, "stderr": done.stderr.decode()}

    one._low_level_execute_command = execute
    return one


def progress(tmp_path, total, done=0):
    return {"done": done, "total": total, "path": str(tmp_path / "staging" / "partial"), "staging": str(tmp_path / "staging")}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "image"
    path.write_bytes(os.urandom((5 << 20) + 17))
    return path


def test_pieces_arrive_whole_and_in_order(action, tmp_path, source, monkeypatch):
    monkeypatch.setattr(base_image, "CHUNK", 1 << 20)
    assert action._push(str(source), progress(tmp_path, source.stat().st_size), MODE) is None
    assert (tmp_path / "staging" / "partial").read_bytes() == source.read_bytes()
    assert len(action.commands) == 6


def test_a_push_goes_on_where_the_host_has_ended(action, tmp_path, source):
    (tmp_path / "staging" / "partial").write_bytes(source.read_bytes()[: 2 << 20])
    assert action._push(str(source), progress(tmp_path, source.stat().st_size, 2 << 20), MODE) is None
    assert (tmp_path / "staging" / "partial").read_bytes() == source.read_bytes()


def test_a_slice_ends_when_its_time_is_up(action, tmp_path, source, monkeypatch):
    monkeypatch.setattr(base_image, "CHUNK", 1 << 20)
    monkeypatch.setattr(base_image, "SLICE", 0)
    assert action._push(str(source), progress(tmp_path, source.stat().st_size), MODE) is None
    assert (tmp_path / "staging" / "partial").stat().st_size == 1 << 20


def test_a_file_that_another_run_has_finished_is_not_made_again(action, tmp_path, source):
    (tmp_path / "staging" / "partial").unlink()
    assert action._push(str(source), progress(tmp_path, source.stat().st_size), MODE) is None
    assert os.listdir(tmp_path / "staging") == []


def test_a_piece_that_cannot_be_written_names_file_place_and_reason(action, tmp_path, source):
    (tmp_path / "staging" / "partial").unlink()
    (tmp_path / "staging" / "partial").symlink_to("/dev/full")
    failure = action._push(str(source), progress(tmp_path, source.stat().st_size), MODE)
    assert failure["failed"]
    assert str(source) in failure["msg"] and "partial" in failure["msg"] and "No space left" in failure["msg"]


def test_a_source_that_becomes_shorter_is_named(action, tmp_path, source):
    failure = action._push(str(source), progress(tmp_path, source.stat().st_size + 1), MODE)
    assert failure["failed"] and "shorter" in failure["msg"]


def test_pieces_are_written_by_the_account_in_session_mode(action, tmp_path, source):
    action._push(str(source), progress(tmp_path, source.stat().st_size), {"mode": "session", "user": "nobody-of-that-name"})
    assert "runuser -u nobody-of-that-name -- flock" in action.commands[0]


@pytest.mark.parametrize(
    "said, want",
    [
        ({"phase": "upload", "done": 1 << 20, "total": 4 << 20}, "upload 25 % of 4 MiB"),
        ({"phase": "download", "done": 3 << 20, "total": None, "url": "https://m.example.com/i?token=x"}, "download 3 MiB, from https://m.example.com/i"),
        ({"phase": "another run works on this pool"}, "another run works on this pool"),
    ],
)
def test_progress_is_said_in_a_sentence_without_what_may_be_secret(said, want):
    assert base_image.describe(said) == want
