"""Every kind of file of a partition, damaged in every way, after a clean stop and after kill -9: clients see what they saw
before, or somebody is told; and what an error says is the way on is one.

What no software could find is left out here by name (`cannot_be_known`), and stands in docs/broker.md.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crc32c")
pytest.importorskip("cramjam")

from tests.broker.log import damage
from tests.broker.log.damage import COMPACTED, PLAIN, UNCHECKED, Damage, View
from tests.broker.record_batches import stored
from waterclock.broker.log.index import last_row
from waterclock.broker.settings import TopicSettings

KINDS = {"plain": PLAIN, "compacted": COMPACTED}
STOPS = ["clean stop", "kill -9"]


def stamp(path: Path) -> tuple[int, ...]:
    """What changes with a file."""
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


@pytest.fixture(autouse=True)
def _without_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power is cut here."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda fd: None)


class Scene:
    """A log that was left in one way, to be damaged again and again."""

    def __init__(self, folder: Path, settings: TopicSettings, how: str) -> None:
        self.settings, self.how = settings, how
        self.origin, self.data = damage.fill(folder / "origin", settings), folder / "data"
        log = damage.opened(self.origin, settings)
        damage.leave(self.origin, log, how)
        other = damage.fill(folder / "other", settings, "elsewhere", 7)
        damage.leave(other, damage.opened(other, settings, "elsewhere"), how)
        shutil.copytree(other / "elsewhere", self.origin / "another")
        if how == "clean stop":
            shutil.copy(other / damage.MARK, self.origin / "another")
        self.content = {path.relative_to(self.origin): path.read_bytes() for path in self.files()}
        self.written: dict[Path, tuple[int, ...]] = {}
        (self.data / "log").mkdir(parents=True)
        self.expected: View = damage.read(damage.opened(self.fresh(), settings))
        assert len(self.expected.committed) < len(self.expected.every)

    def fresh(self) -> Path:
        """A data folder as it was left: what has changed since the last time is written anew."""
        for path in (*(self.data / "log").iterdir(), self.data / damage.MARK):
            if path.relative_to(self.data) not in self.content:
                path.unlink(missing_ok=True)
        for name, content in self.content.items():
            path = self.data / name
            if not path.exists() or stamp(path) != self.written.get(name):
                path.unlink(missing_ok=True)
                path.write_bytes(content)
                self.written[name] = stamp(path)
        return self.data

    def files(self) -> list[Path]:
        mark = [self.origin / damage.MARK] if self.how == "clean stop" else []
        return [*sorted((self.origin / "log").iterdir()), *mark]

    def place(self, data: Path, one: Damage) -> Path:
        return data / one.name if one.name == damage.MARK else data / "log" / one.name

    def cannot_be_known(self, one: Damage, seen: str) -> bool:
        """A batch's offset and epoch have no checksum. After a crash a log cut between two batches, behind all that is
        proved durable, looks as if the last ones had never been there; and one from before a compaction as if that had
        not come."""
        if not one.name.endswith(".log"):
            return False
        if one.deed is damage.another:
            return True  # its records are served under this one's name, as by Apache Kafka
        if self.how == "kill -9" and self.settings.compact and one.deed is damage.put_back:
            return seen.startswith("committed: without [], with")
        path = self.origin / "log" / one.name
        if self.how == "kill -9" and seen.startswith("end: "):
            end = int(seen.split()[1])
            row = last_row(str(path.with_suffix(".index")), int(path.stem))
            snapshots = [int(p.stem) for p in path.parent.glob("*.snapshot")]
            return end > max(*snapshots, row[0] if row else -1)
        return self.only_unchecked(one, path)

    def only_unchecked(self, one: Damage, path: Path) -> bool:
        if not self.place(self.data, one).exists():
            return False
        before, after = path.read_bytes(), self.place(self.data, one).read_bytes()
        changed = {n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b}
        at, unchecked = 0, set[int]()
        for b in stored(before):
            unchecked |= {at + n for n in UNCHECKED}
            at += len(b.raw)
        return len(before) == len(after) and changed <= unchecked


def every_damage(scene: Scene, luck: random.Random, many: int, caplog: Any) -> None:
    for path in scene.files():
        for one in damage.damages(path, luck, many):
            data = scene.fresh()
            if not one.deed(scene.place(data, one), scene.origin / "before" / one.name):
                continue
            seen = damage.outcome(data, scene.settings, scene.expected, caplog)
            if seen in ("as before", "told") or one.name in caplog.text:
                continue
            assert scene.cannot_be_known(one, seen), (
                f"{one.name}, {one.what}, {scene.how}: {seen}; said was {caplog.text!r}"
            )


@pytest.mark.parametrize("how", STOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_damage_of_one_file_is_passed_over_in_silence(
    tmp_path: Path, kind: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    every_damage(Scene(tmp_path, KINDS[kind], how), random.Random(7), 1, caplog)


def every_way_on(scene: Scene, luck: random.Random, many: int) -> int:
    """Do what errors say until the log opens: what is read then was there before, and the next start needs nothing more."""
    followed = 0
    for path in scene.files():
        for one in damage.damages(path, luck, many):
            data = scene.fresh()
            if not one.deed(scene.place(data, one), scene.origin / "before" / one.name):
                continue
            ways = 0
            while (error := damage.refused(data, scene.settings)) is not None:
                assert one.name in str(error) or ways, f"{one.name}, {one.what}, {scene.how}: {error}"
                ways += 1
                assert ways <= 4, f"{one.name}, {one.what}, {scene.how}: {error}"
                assert damage.follow_the_remedy(error), str(error)
            followed += ways
            if ways:
                assert damage.refused(data, scene.settings) is None
    return followed


@pytest.mark.parametrize("how", STOPS)
def test_the_way_on_that_an_error_names_is_one(tmp_path: Path, how: str) -> None:
    assert every_way_on(Scene(tmp_path, PLAIN, how), random.Random(7), 1) > 3


@pytest.mark.long(seconds=40)
@pytest.mark.parametrize("how", STOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_nor_does_any_other_lead_nowhere(tmp_path: Path, kind: str, how: str, campaign_seed: int) -> None:
    assert every_way_on(Scene(tmp_path, KINDS[kind], how), random.Random(campaign_seed), 60) > 10


@pytest.mark.long(seconds=45)
@pytest.mark.parametrize("how", STOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_nor_is_any_other(
    tmp_path: Path, kind: str, how: str, caplog: pytest.LogCaptureFixture, campaign_seed: int
) -> None:
    every_damage(Scene(tmp_path, KINDS[kind], how), random.Random(campaign_seed), 100, caplog)
