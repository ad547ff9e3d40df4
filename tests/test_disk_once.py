"""Files that are made once: whole, durable, and of two that make one at once, one is refused."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from unittest.mock import patch

import pytest

from tests.test_disk import NEW, OLD, PowerCut, Steps
from waterclock.disk import create_whole

STEPS = ("open", "write", "fsync", "link", "unlink", "folder")


def test_a_file_is_flushed_before_it_has_its_name_and_its_folder_after_that(tmp_path: Path) -> None:
    with Steps() as steps:
        assert create_whole(tmp_path / "notes", NEW) is True
    assert steps.seen == list(STEPS)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("notes", NEW)]


def test_one_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    assert create_whole(tmp_path / "notes", OLD) is True
    assert create_whole(tmp_path / "notes", NEW) is False
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("notes", OLD)]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_each_step_leaves_the_whole_file_or_none(step: str, when: str, tmp_path: Path) -> None:
    with Steps(step, when), pytest.raises(PowerCut):
        create_whole(tmp_path / "notes", NEW)
    is_there = STEPS.index(step) > STEPS.index("link") or (step, when) == ("link", "after")
    plain = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert [path.read_bytes() for path in plain] == ([NEW] if is_there else [])
    assert create_whole(tmp_path / "notes", NEW) is not is_there  # what the crash left stands in nobody's way


@pytest.mark.parametrize("step", STEPS[1:4])
def test_a_disk_that_refuses_leaves_nothing(step: str, tmp_path: Path) -> None:
    refusing = Steps(step, "before", lambda: OSError(errno.EPERM, "Operation not permitted"))
    with refusing, pytest.raises(OSError, match="not permitted"):
        create_whole(tmp_path / "notes", NEW)
    assert list(tmp_path.iterdir()) == []


def test_a_link_that_was_made_and_refused_when_it_was_asked_for_again_counts(tmp_path: Path) -> None:
    real = os.link

    def twice(old: str, new: str) -> None:
        real(old, new)
        real(old, new)

    with patch.object(os, "link", twice):
        assert create_whole(tmp_path / "notes", NEW) is True


def test_of_many_that_make_one_at_once_one_does(tmp_path: Path) -> None:
    start = Barrier(8)

    def make(number: int) -> bool:
        start.wait()
        return create_whole(tmp_path / "notes", b"%d" % number)

    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(make, range(8)))
    assert made.count(True) == 1
    assert (tmp_path / "notes").read_bytes() == b"%d" % made.index(True)
