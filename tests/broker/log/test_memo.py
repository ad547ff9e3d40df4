"""What is kept beside the records: two files, of which either can be lost, damaged or put back from before."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("crc32c")

from tests.broker.log.damage import PLAIN, opened, recorded
from tests.broker.log.test_aborted import begin, transact
from waterclock.broker.errors import LogDamaged
from waterclock.broker.log.durable import make_durable
from waterclock.broker.log.memo import COPY, NAME, Memo
from waterclock.broker.log.removal import cut
from waterclock.disk import unsealed

EPOCHS = [(0, 0), (3, 40), (4, 60)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One that was written twice."""
    memo = Memo(str(tmp_path / NAME))
    memo.save()
    (tmp_path / "before").mkdir()
    for name in (NAME, COPY):
        (tmp_path / "before" / name).write_bytes((tmp_path / name).read_bytes())
    memo.start, memo.epochs, memo.cleaned = 17, EPOCHS, 12
    memo.save()
    return tmp_path


def kept(folder: Path) -> tuple[int, list[tuple[int, int]], int]:
    memo = Memo.load(str(folder))
    return memo.start, memo.epochs, memo.cleaned


@pytest.mark.parametrize("name", [NAME, COPY])
def test_whatever_becomes_of_one_of_the_two_what_they_hold_is_known(
    folder: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, whole = folder / name, (folder / name).read_bytes()
    damages = [whole[:n] + bytes([whole[n] ^ 1 << n % 8]) + whole[n + 1 :] for n in range(0, len(whole), 3)]
    damages += [*(whole[:n] for n in range(len(whole))), bytes(len(whole)), (folder / "before" / name).read_bytes()]
    for data in [*damages, None]:
        write_both(folder, whole)
        path.unlink() if data is None else path.write_bytes(data)
        for said in (name == NAME and not readable(data, whole), False):
            caplog.clear()
            assert kept(folder) == (17, EPOCHS, 12)
            assert (f"{path} was written anew from its copy" in caplog.text) == said
            assert said or caplog.text == ""
            assert (folder / COPY).read_bytes() == (folder / NAME).read_bytes() or readable(data, whole)


def write_both(folder: Path, data: bytes) -> None:
    for name in (NAME, COPY):
        (folder / name).write_bytes(data)


def readable(data: bytes | None, whole: bytes) -> bool:
    """Whether nothing but a blank was changed."""
    with suppress(ValueError):
        return bool(unsealed(data or b"") == unsealed(whole))
    return False


def test_if_both_are_damaged_nobody_knows_where_readers_may_begin(folder: Path) -> None:
    for name in (NAME, COPY):
        os.truncate(folder / name, 20)
    with pytest.raises(LogDamaged, match=rf"{folder / NAME} cannot be read .* nor can {folder / COPY}.* or rename "):
        kept(folder)


def test_the_form_of_earlier_versions_is_taken_and_written_anew(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(json.dumps({"start": 17, "epochs": EPOCHS, "cleaned": 12}).encode())
    assert kept(tmp_path) == (17, EPOCHS, 12)
    assert unsealed((tmp_path / NAME).read_bytes())["writes"] == 1
    (tmp_path / NAME).unlink()
    assert kept(tmp_path) == (17, EPOCHS, 12)


def test_a_disk_that_refuses_the_copy_refuses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memo = Memo.load(str(folder))
    (folder / COPY).unlink()
    (folder / COPY).mkdir()
    memo.start = 18
    memo.save()
    (folder / COPY).rmdir()
    assert kept(folder)[0] == 18


def test_epochs_that_are_lost_with_both_are_found_in_the_batches_and_the_start_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = begin(tmp_path)
    log.memo.epochs.append((5, log.end))
    log.memo.start = 9
    log.memo.save()
    transact(log, 7, 20, commit=True)
    make_durable(log)
    for name in (NAME, COPY):
        (tmp_path / "log" / name).unlink()
    again = opened(tmp_path, PLAIN)
    assert (again.memo.epochs, again.start) == ([(0, 0), (5, 120)], 0)
    assert "the epochs of leaders were found in the batches" in caplog.text
    caplog.clear()
    assert opened(tmp_path, PLAIN).memo.epochs == [(0, 0), (5, 120)]
    assert caplog.text == ""


def test_what_a_cut_has_taken_from_it_stays_away(tmp_path: Path) -> None:
    log = begin(tmp_path)
    log.memo.epochs += [(1, 30), (2, 50)]
    log.memo.start, log.memo.cleaned = 45, 60
    log.memo.save()
    for memo in (cut(log, 40).memo, opened(tmp_path, PLAIN).memo):
        assert (memo.epochs, memo.start, memo.cleaned) == ([(0, 0), (1, 30)], 40, 40)


def test_the_records_are_gone_for_good_before_the_memo_forgets_whose_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = begin(tmp_path)
    deeds = recorded(monkeypatch, "ftruncate", "fdatasync", "replace")
    cut(log, 40)
    assert deeds[:3] == ["ftruncate", "fdatasync", "replace"]


def test_a_wrong_epoch_in_a_batch_is_not_believed_where_the_memo_is_there(tmp_path: Path) -> None:
    """It lies outside of the batch's checksum."""
    log = begin(tmp_path)
    log.memo.save()
    transact(log, 9, 20, commit=None)
    make_durable(log)
    at, _ = log.active.locate(120)
    with open(log.active.path + ".log", "r+b") as file:
        file.seek(at + 13)
        file.write(b"\1")
    assert opened(tmp_path, PLAIN).memo.epochs == [(0, 0)]
