"""A disk that refuses what the relay's files are given: what is due is delivered, what comes in waits, nothing is lost."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.relay.test_kills import owner_of
from tests.relay.world import World, step_quietly, step_until
from waterclock.relay.owner.context import AGAIN_NS, SAID_EVERY_NS
from waterclock.relay.owner.owner import Owner
from waterclock.relay.relay import Relay
from waterclock.relay.store import PartitionStore

DAY_MS = 24 * 3_600_000


class Disk:
    """Refuses what is written in a folder while `is_full`, after `left` writes more, and takes half of it first."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.is_full, self.left, self.refused, self.manifests = str(folder), False, 0, 0, 0
        self._pwrite, self._replace = os.pwrite, os.replace
        patch.setattr(os, "pwrite", self.pwrite)
        patch.setattr(os, "replace", self.replace)

    def pwrite(self, fd: int, data: Any, at: int) -> int:
        if self._refuses(os.readlink(f"/proc/self/fd/{fd}")):
            self._pwrite(fd, data[: len(data) // 2], at)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._pwrite(fd, data, at)

    def replace(self, old: Any, new: Any) -> None:
        if self._refuses(str(new)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._replace(old, new)
        self.manifests += str(new).startswith(self.folder)

    def _refuses(self, path: str) -> bool:
        refuses = self.is_full and path.startswith(self.folder)
        if refuses and self.left:
            self.left -= 1
            return False
        self.refused += refuses
        return refuses


@pytest.fixture
def disk(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(world.folder, monkeypatch)
    yield disk
    disk.is_full = False


def step_until_held(relay: Relay) -> None:
    """Once it holds something it reads no more: how much that is, the machine says."""
    step_until(lambda: owner_of(relay).held, relay)


def make_room(world: World, disk: Disk) -> None:
    disk.is_full = False
    world.clock.advance_s(AGAIN_NS / 1e9)


def test_what_is_due_is_delivered_and_what_comes_in_waits_for_room(
    world: World, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    relay = world.started()
    world.send("a", "b", in_ms=1_000, id="x")
    step_quietly(relay)
    disk.is_full = True
    world.send("c", in_ms=1_500)
    world.put(None, delay_id="x", delay_action="cancel")
    world.put(b"bad")
    step_until_held(relay)
    world.advance_ms(1_000)
    step_until(lambda: len(world.values()) == 2, relay)
    assert (world.values(), world.replies(), world.letters()) == (["a", "b"], [], [])
    make_room(world, disk)
    step_until(lambda: len(world.values()) == 3 and world.letters(), relay)
    step_quietly(relay)
    assert (world.values(), world.replies()) == (["a", "b", "c"], [("x", "already delivered", 0)])
    assert (len(world.letters()), owner_of(relay).held) == (1, [])


def test_it_says_which_file_was_to_take_how_much_and_that_it_does_again(
    world: World, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    relay = world.started()
    disk.is_full = True
    world.send("x" * 5_000, in_ms=1_000)
    step_until_held(relay)
    (said,) = [record for record in caplog.records if "does not take" in record.getMessage()]
    assert said.levelno == logging.WARNING
    wanted = owner_of(relay).disk.wanted
    assert f"{world.topic}-0: the disk does not take {wanted} bytes for {owner_of(relay).store.folder}/" in said.message
    relay._gather(now=True)
    told = relay.statistics().partitions[0]
    assert (told.held, told.bytes_wanted, told.refusals) == (1, wanted, 1)
    make_room(world, disk)
    step_until(lambda: not owner_of(relay).held, relay)
    assert f"{world.topic}-0: the disk takes what is written again" in caplog.text
    relay._gather(now=True)
    told = relay.statistics().partitions[0]
    assert (told.held, told.bytes_wanted) == (0, 0)


def test_while_it_lasts_it_is_tried_again_and_said_once_a_minute(
    world: World, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    relay = world.started()
    disk.is_full = True
    world.send("a", in_ms=1_000)
    step_until_held(relay)
    for _ in range(5):
        relay.step(0)  # time stands still: nothing is tried
    assert owner_of(relay).disk.refusals == 1
    for count in range(2, 6):
        world.clock.advance_s(AGAIN_NS / 1e9)
        step_until(lambda count=count: owner_of(relay).disk.refusals >= count, relay)
    assert caplog.text.count("does not take") == 1
    world.clock.advance_s(SAID_EVERY_NS / 1e9)
    relay.step(0)
    assert caplog.text.count("does not take") == 2


def test_no_more_is_read_than_is_held(world: World, disk: Disk) -> None:
    relay = world.started()
    disk.is_full = True
    world.send("a", in_ms=1_000)
    step_until_held(relay)
    relay.step(0)  # it is paused at the end of a step
    world.send(*map(str, range(50)), in_ms=1_000)
    for _ in range(20):
        relay.step(0.01)
    assert sum(map(len, owner_of(relay).held)) == 1
    make_room(world, disk)
    world.advance_ms(1_000)
    step_until(lambda: len(world.values()) == 51, relay)
    assert world.values() == ["a", *map(str, range(50))]


def test_a_relay_that_dies_while_the_disk_is_full_loses_nothing(world: World, disk: Disk) -> None:
    relay = world.started()
    world.send("a", in_ms=1_000)
    step_quietly(relay)
    owner_of(relay).checkpoint()
    disk.is_full = True
    world.send("b", in_ms=1_500)
    step_until_held(relay)
    world.advance_ms(1_000)
    step_until(world.values, relay)
    world.crash(relay)
    disk.is_full = False
    relay = world.started()
    world.advance_ms(1_000)
    step_until(lambda: len(world.values()) >= 2, relay)
    step_quietly(relay)
    assert world.values() == ["a", "b"]


def test_one_that_starts_on_a_full_disk_delivers_what_it_has_filed(world: World, disk: Disk) -> None:
    relay = world.started()
    world.send("a", "b", in_ms=1_000)
    world.send("gone", in_ms=1_000, id="x")
    world.put(None, delay_id="x", delay_action="cancel")
    step_quietly(relay)
    owner_of(relay).checkpoint()
    world.crash(relay)
    disk.is_full = True
    relay = world.started()
    world.advance_ms(1_000)
    step_until(lambda: len(world.values()) == 2, relay)
    world.send("c", in_ms=0)
    step_until_held(relay)
    world.close(relay)  # nor does it hang, or raise, when it ends
    disk.is_full = False
    relay = world.started()
    step_until(lambda: len(world.values()) >= 3, relay)
    assert world.values() == ["a", "b", "c"]


def test_one_that_has_no_files_yet_waits_for_room(world: World, disk: Disk) -> None:
    disk.is_full = True
    relay = world.relay()
    step_until(lambda: world.lost, relay)
    assert "The disk refuses the files of " in str(world.lost[0])
    disk.is_full = False
    step_until(lambda: relay.owners, relay)
    world.send("a", in_ms=0)
    step_until(world.values, relay)


def test_what_cannot_be_split_for_want_of_room_is_not_overtaken(
    world: World, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first message lies in the span of a day, the second one in that of an hour of the same day."""
    monkeypatch.setattr(Owner, "tidy", lambda self: None)
    relay = world.started()
    world.send("first", in_ms=5 * DAY_MS)
    step_quietly(relay)
    world.advance_ms(4 * DAY_MS)
    relay.step(0)
    world.send("second", in_ms=DAY_MS + 1_000)
    step_quietly(relay)
    assert len(owner_of(relay).store.spans()) == 2
    disk.is_full = True
    world.advance_ms(DAY_MS + 2_000)
    for _ in range(3):
        relay.step(0)
        world.clock.advance_s(AGAIN_NS / 1e9)
    assert disk.refused
    assert world.values() == []
    make_room(world, disk)
    step_until(lambda: len(world.values()) == 2, relay)
    assert world.values() == ["first", "second"]


def test_what_was_split_in_part_is_not_delivered_before_the_rest(
    world: World, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Owner, "tidy", lambda self: None)
    monkeypatch.setattr("waterclock.relay.store.store.READ_ROWS", 1)
    relay = world.started()
    world.send("second", in_ms=5 * DAY_MS + 2_000)
    world.send("first", in_ms=5 * DAY_MS + 1_000)
    step_quietly(relay)
    disk.is_full, disk.left = True, 7
    world.advance_ms(5 * DAY_MS + 3_000)
    step_until(lambda: disk.refused, relay)
    assert len(owner_of(relay).due_soon) == 1
    world.put(None, delay_id="x", delay_action="cancel")  # has a turn happen, and needs no room
    world.clock.advance_s(AGAIN_NS / 1e9)
    step_until(world.replies, relay)
    assert world.values() == []
    make_room(world, disk)
    step_until(lambda: len(world.values()) == 2, relay)
    assert world.values() == ["first", "second"]


def test_a_checkpoint_that_is_refused_is_written_when_there_is_room(world: World, disk: Disk) -> None:
    relay = world.started()
    world.send("a", in_ms=50_000)
    step_quietly(relay)
    world.clock.advance_s(2)
    step_until(lambda: owner_of(relay).store.data_position == 1 and owner_of(relay).command_position == 1, relay)
    world.send("b", in_ms=50_000)
    step_quietly(relay)
    owner_of(relay).command_position = 2  # as if a turn had said so: none comes in between
    disk.is_full, written = True, disk.manifests
    world.clock.advance_s(2)
    step_until(lambda: owner_of(relay).disk.refusals, relay)
    make_room(world, disk)
    world.clock.advance_s(2)
    step_until(lambda: owner_of(relay).store.data_position == 2, relay)
    assert disk.manifests > written


def test_a_process_that_may_open_no_file_more_goes_on_when_it_may(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay ended, with a traceback."""
    relay = world.started()
    owner = owner_of(relay)
    world.send("a", "b", in_ms=0)

    def none_left(store: PartitionStore, rows: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(PartitionStore, "read", none_left)
        step_until(lambda: world.lost, relay)
    assert "cannot be opened: Too many open files. Raise ulimit -Hn" in str(world.lost[0])
    step_until(lambda: world.advance_ms(50) or world.values(), relay)
    assert world.values() == ["a", "b"]
    assert owner_of(relay) is not owner
    assert [path.name for path in world.folder.rglob("*.aside.*")] == []
