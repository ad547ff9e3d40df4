"""Every kind of file, damaged in every way: it is found, and the store is empty and says why; or what is read is right.

Never a wrong row, never a missing one.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

import numpy as np

from tests.relay.store.stores import DAY, HOUR, NOON, US, Date, value
from waterclock.relay.store import PartitionStore, State, StoreDamaged, ids, ledger, pack, rows_of, spans, unpack

NAMES = [b"cart-%d" % n for n in range(40)]
KINDS = {"manifest", "data", "index", "snapshot", "journal", "log", "run"}
Positions = tuple[int, bytes | None, int]


@dataclass(frozen=True)
class View:
    """All that a store says."""

    pending: dict[int, bytes]
    found: list[list[tuple[Any, ...]]]
    counts: list[tuple[int, str, int]]


def view(store: PartitionStore) -> View:
    """Everything is loaded, read and looked up. `StoreDamaged` where a store says so."""
    counts = sorted((span.start_ms, *one) for span in store.spans() for one in span.pending.items())
    found = [[tuple(one) for one in some] for some in store.find_many(NAMES)]
    pending: dict[int, bytes] = {}
    for rows in store.load(NOON + 1_000 * DAY, 1_000):
        values = [unpack(blob).value or b"" for blob in store.read(rows)]
        assert not pending.keys() & set(rows["origin"].tolist())
        pending |= dict(zip(rows["origin"].tolist(), values, strict=True))
    return View(pending, found, counts)


class Scene:
    """A folder as a relay left it, the older copies of its files, and what it said at each checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.origin, self.place, self.older = folder / "origin", folder / "place", folder / "older"
        self.views: dict[Positions, View] = {}
        luck = random.Random(7)
        with PartitionStore(self.origin, US, Date()) as store:
            for first in range(0, 200, 20):
                self.write(store, first, luck)
                store.checkpoint(first + 20, b"%d" % first, first)
                shutil.copytree(store.folder, self.older / str(first))
        for copy in sorted(self.older.iterdir()):
            with self.opened(copy) as store:
                assert store.rebuilt is None
                self.views[store.data_position, store.fingerprint, store.settled_position] = view(store)
        self.last = max(self.views)
        self.files = sorted(path for path in (self.origin / US.folder_name()).iterdir() if path.name != "lock")
        assert {path.name.split(".")[-1] for path in self.files} == KINDS

    def write(self, store: PartitionStore, first: int, luck: random.Random) -> None:
        ahead = [0, 5, HOUR, 5 * DAY, 5 * DAY + HOUR, 200 * DAY]
        origins = range(first, first + 20)
        dues = [NOON + luck.choice(ahead) for _ in origins]
        blobs = [pack(value(o, due), b"key", luck.choice(NAMES)) for o, due in zip(origins, dues, strict=True)]
        store.append(rows_of(dues, origins), blobs, [luck.choice(["mails", "reminders"]) for _ in origins])
        store.settle(np.array(luck.sample(range(first + 20), 8)), luck.choice([State.DELIVERED, State.CANCELLED]))

    def opened(self, copy: Path) -> PartitionStore:
        """A copy of a folder, opened."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(copy, self.place / US.folder_name())
        return PartitionStore(self.place, US, Date())

    def after(self, deed: Callable[[Path], None]) -> str:
        """What a store says after something was done to the folder: how it went, in a word."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.origin / US.folder_name(), self.place / US.folder_name())
        deed(self.place / US.folder_name())
        with PartitionStore(self.place, US, Date()) as store:
            if store.rebuilt is None:
                positions = store.data_position, store.fingerprint, store.settled_position
                try:
                    assert view(store) == self.views[positions]
                    return "right" if positions == self.last else "right, and older"
                except StoreDamaged as error:
                    store.set_aside(str(error), None)
            assert store.rebuilt
            assert (store.pending, store.data_position, store.settled_position, store.fingerprint) == (0, 0, 0, None)
            assert view(store) == View({}, [[] for _ in NAMES], [])
            return "found"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda fd: None)
        patch.setattr(ids, "IN_MEMORY", 50)
        patch.setattr(ledger, "JOURNAL_BYTES", 300)
        patch.setattr(spans, "FULL_BYTES", 500)
        yield Scene(tmp_path_factory.mktemp("damage"))


def flip(data: bytes, luck: random.Random) -> bytes:
    at = luck.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << luck.randrange(8)]) + data[at + 1 :]


def cut(data: bytes, luck: random.Random) -> bytes:
    return data[: luck.randrange(len(data))]


def zero(data: bytes, luck: random.Random) -> bytes:
    at = luck.randrange(len(data))
    return data[:at] + bytes(min(len(data) - at, luck.choice([8, 512, 4_096]))) + data[at + 4_096 :]


def swap(data: bytes, luck: random.Random) -> bytes:
    """Two parts of it in each other's place."""
    size = luck.randrange(1, max(2, len(data) // 3))
    a = luck.randrange(len(data) - 2 * size + 1)
    b = luck.randrange(a + size, len(data) - size + 1)
    return data[:a] + data[b : b + size] + data[a + size : b] + data[a : a + size] + data[b + size :]


def lengthen(data: bytes, luck: random.Random) -> bytes:
    return data + luck.randbytes(100)


DAMAGES = [flip, cut, zero, swap, lengthen]


def damage_all(scene: Scene, luck: random.Random, times: int) -> dict[str, int]:
    seen: dict[str, int] = {}
    for path in scene.files:
        for damage in DAMAGES * times:

            def deed(folder: Path, name: str = path.name, damage: Any = damage) -> None:
                (folder / name).write_bytes(damage((folder / name).read_bytes(), luck))

            outcome = scene.after(deed)
            assert outcome in ("right", "found")
            seen[outcome] = seen.get(outcome, 0) + 1
    return seen


def test_a_folder_that_nobody_touched_is_right(scene: Scene) -> None:
    assert scene.after(lambda folder: None) == "right"


def test_damage_of_any_file_is_found_or_does_no_harm(scene: Scene) -> None:
    seen = damage_all(scene, random.Random(7), 1)
    assert seen["found"] > seen["right"] > 10


@pytest.mark.long(seconds=20)
def test_nor_does_any_other_damage(scene: Scene, campaign_seed: int) -> None:
    damage_all(scene, random.Random(campaign_seed), 40)


@pytest.mark.parametrize("kind", sorted(KINDS - {"manifest"}))
def test_a_file_that_is_gone_is_missed(scene: Scene, kind: str) -> None:
    for path in (path for path in scene.files if path.suffix == f".{kind}"):
        assert scene.after(lambda folder, name=path.name: (folder / name).unlink()) == "found"  # type: ignore[misc]


def test_without_the_manifest_nothing_is_believed(scene: Scene) -> None:
    assert scene.after(lambda folder: (folder / "manifest").unlink()) == "found"


def test_an_older_copy_of_any_one_file_is_found_or_does_no_harm(scene: Scene) -> None:
    seen: dict[str, int] = {}
    for copy in sorted(scene.older.iterdir())[::3]:
        for path in sorted(copy.iterdir()):
            outcome = scene.after(lambda folder, path=path: shutil.copy(path, folder / path.name))  # type: ignore[misc]
            assert outcome in ("found", "right") or path.name == "manifest"
            seen[outcome] = seen.get(outcome, 0) + 1
    assert seen["found"] > 10
    assert seen["right"] > 10  # files that the manifest does not name any more


def test_a_file_in_the_place_of_another_of_its_kind_is_found(scene: Scene) -> None:
    for path in scene.files:
        for other in scene.files:
            if path.suffix == other.suffix and path != other:
                outcome = scene.after(lambda folder, a=path, b=other: shutil.copy(b, folder / a.name))  # type: ignore[misc]
                assert outcome == "found"


def test_a_whole_older_folder_is_as_it_was(scene: Scene) -> None:
    for copy in scene.older.iterdir():
        with scene.opened(copy) as store:
            positions = store.data_position, store.fingerprint, store.settled_position
            assert (store.rebuilt, view(store)) == (None, scene.views[positions])


def test_a_file_that_was_written_on_after_a_crash_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    """The story: a checkpoint names 1 message. Another is appended, and the power fails: the log is read again from 1, and
    there another message stands now, of the same size. Then somebody puts the files of before the crash back."""
    for kept in ("data", "index", "journal", "log"):
        folder = tmp_path / kept / US.folder_name()
        with PartitionStore(tmp_path / kept, US, Date()) as store:
            one(store, 0)
            store.checkpoint(1, None, 0)
            one(store, 1)
            before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with PartitionStore(tmp_path / kept, US, Date()) as store:
            one(store, 2)
            store.checkpoint(3, None, 0)
        path = next(folder.glob(f"*.{kept}"))
        assert len(before[path.name]) == path.stat().st_size
        path.write_bytes(before[path.name])
        with PartitionStore(tmp_path / kept, US, Date()) as store:
            if store.rebuilt is None:
                with pytest.raises(StoreDamaged, match="does not hold what was written to it"):
                    view(store)


def one(store: PartitionStore, origin: int) -> None:
    store.append(rows_of([NOON], [origin]), [pack(value(origin, NOON), None, NAMES[0])], ["mails"])
