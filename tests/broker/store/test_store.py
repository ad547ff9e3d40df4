"""The store alone: what it refuses, what is refused with that, and in which order who is told."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import pytest

pytest.importorskip("crc32c")

from waterclock.broker.knobs import Knobs, turned
from waterclock.broker.store import Entry, Forget, Store
from waterclock.broker.store.file import Row, StoreFile
from waterclock.disk import write_whole

PATIENCE_S = 20.0
LARGE = "x" * 200_000


class Loop:
    """A loop whose calls wait until the test has them run."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = queue.SimpleQueue()

    def soon(self, deed: Callable[..., Any], *arguments: Any) -> None:
        self.calls.put((deed, arguments))

    def turn(self) -> None:
        """Run one call, which may be still to come."""
        deed, arguments = self.calls.get(timeout=PATIENCE_S)
        deed(*arguments)


class Scene:
    """A store on a disk that has no room for anything large, and what its commits were told, in order."""

    def __init__(self, path: Path) -> None:
        self.loop = Loop()
        self.store = Store(str(path), self.loop.soon)
        self.ended: list[tuple[str, bool]] = []
        self._append = self.store._file.append
        self.store._file.append = self.append  # type: ignore[method-assign]

    def append(self, rows: list[Row]) -> None:
        if any(len(row.value or b"") >= len(LARGE) for row in rows):
            raise OSError(28, "No space left on device")
        self._append(rows)

    def put(self, key: str, value: Any) -> None:
        self.store.put("r", key, value, lambda done: self.ended.append((key, done)))

    def until(self, count: int) -> list[tuple[str, bool]]:
        while len(self.ended) < count:
            self.loop.turn()
        return self.ended


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.store.close()


def test_what_a_full_disk_refuses_is_told_and_not_there(scene: Scene) -> None:
    scene.put("small", 1)
    assert scene.until(1) == [("small", True)]
    scene.put("large", LARGE)
    assert scene.until(2)[1:] == [("large", False)]
    assert scene.store.load("r") == {"small": 1}


def test_what_was_handed_in_behind_a_refused_commit_is_refused_too_the_latest_first(scene: Scene) -> None:
    scene.put("large", LARGE)
    deed, arguments = scene.loop.calls.get(timeout=PATIENCE_S)  # it is refused, and nobody has been told
    scene.put("made of it", 1)
    scene.put("made of that", 2)
    deed(*arguments)
    assert scene.ended == [("made of that", False), ("made of it", False), ("large", False)]
    scene.put("later", 3)
    assert scene.until(4)[3:] == [("later", True)]
    assert scene.store.load("r") == {"later": 3}


def test_what_was_handed_in_before_it_is_told_as_it_went(scene: Scene) -> None:
    scene.put("first", 1)
    first = scene.loop.calls.get(timeout=PATIENCE_S)
    scene.put("large", LARGE)
    second = scene.loop.calls.get(timeout=PATIENCE_S)
    for deed, arguments in (first, second):
        deed(*arguments)
    assert scene.ended == [("first", True), ("large", False)]
    assert scene.store.load("r") == {"first": 1}


def test_what_is_handed_in_by_who_was_refused_is_committed(scene: Scene) -> None:
    def again(done: bool) -> None:
        scene.ended.append(("large", done))
        scene.put("instead", 1)

    scene.store.put("r", "large", LARGE, again)
    assert scene.until(2) == [("large", False), ("instead", True)]


def test_an_error_of_one_who_is_told_keeps_nothing_from_the_others(scene: Scene) -> None:
    def fails(done: bool) -> NoReturn:
        raise ValueError("mine")

    scene.put("large", LARGE)
    deed, arguments = scene.loop.calls.get(timeout=PATIENCE_S)
    scene.store.put("r", "k", 1, fails)
    scene.put("last", 2)
    with pytest.raises(ValueError, match="mine"):
        deed(*arguments)
    assert scene.ended == [("last", False), ("large", False)]


def test_what_the_journal_refuses_is_refused_with_all_behind_it(scene: Scene) -> None:
    def journal(changes: list[Any], then: Any) -> Any:
        if changes[0].key == "bad":
            raise OSError(28, "No space left on device")
        return then

    scene.store.journal(journal)
    scene.put("bad", 1)
    deed, arguments = scene.loop.calls.get(timeout=PATIENCE_S)
    scene.put("behind", 2)
    deed(*arguments)
    assert scene.ended == [("behind", False), ("bad", False)]
    assert scene.store.load("r") == {}


def test_the_whole_store_is_told_or_none_of_it(scene: Scene) -> None:
    answer: list[Any] = []
    scene.put("k", 1)
    scene.store.tell_all(answer.append)
    while not answer:
        scene.loop.turn()
    scene.put("large", LARGE)
    scene.store.tell_all(answer.append)
    while len(answer) < 2:
        scene.loop.turn()
    assert answer == [[Entry("r", "k", 1)], None]


def test_after_a_refusal_the_end_is_reached_all_the_same(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.put("large", LARGE)
    scene.put("behind", 1)
    scene.store.close()
    again = Store(str(tmp_path), lambda *arguments: None)
    assert again.load("r") == {}
    again.close()


def test_at_once_means_durable_or_an_error(scene: Scene) -> None:
    scene.store.commit_at_once(Entry("r", "a", 1), Entry("r", "b", 2))
    scene.store.commit_at_once(Entry("r", "a", None))
    assert scene.store.load("r") == {"b": 2}
    with pytest.raises(OSError, match=r"the store cannot be written: .*No space left"):
        scene.store.commit_at_once(Entry("r", "c", LARGE))
    assert scene.store.load("r") == {"b": 2}


def test_a_flush_of_the_store_that_fails_ends_the_process(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file system fails at a flush on demand: its error is made by hand."""
    ends: list[Exception] = []

    def fails(fd: int) -> NoReturn:
        raise OSError(5, "Input/output error")

    def ended(error: Exception) -> NoReturn:
        ends.append(error)
        raise error  # nothing goes on behind it

    monkeypatch.setattr("os.fdatasync", fails)
    monkeypatch.setattr("waterclock.broker.store.file.flush_failed", ended)
    scene.put("k", 1)
    scene.until(1)
    assert [error.args for error in ends] == [(5, "Input/output error")]


def test_what_is_forgotten_is_forgotten_after_a_restart_too(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.store.commit([Entry("own", "a", 1), Entry("r", "a", 1), Entry("s", "a", 1)])
    scene.store.commit([Forget(frozenset({"own"})), Entry("r", "b", 2)], lambda done: scene.ended.append(("end", done)))
    scene.until(1)
    scene.store.close()
    for _ in range(2):
        again = Store(str(tmp_path), lambda *arguments: None)
        assert [again.load(name) for name in ("own", "r", "s")] == [{"a": 1}, {"b": 2}, {}]
        again.close()


def test_what_is_told_has_what_stands_before_it_in_one_group(scene: Scene) -> None:
    answer: list[Any] = []
    scene.store._writing.acquire()  # until all are handed in
    for key in ("first", "second"):
        scene.put(key, key)
    scene.store.tell_all(answer.append)
    scene.put("third", 3)
    scene.store._writing.release()
    scene.until(3)
    assert answer == [[Entry("r", "first", "first"), Entry("r", "second", "second")]]


def test_a_store_that_was_overwritten_many_times_is_written_anew(tmp_path: Path) -> None:
    with turned(Knobs(store_renew=10_000)):
        scene = Scene(tmp_path)
    scene.store.commit_at_once(Entry("r", "stays", "x" * 100))
    sizes = []
    for number in range(400):
        scene.put("k", f"{number:0200}")
        scene.until(number + 1)
        sizes.append(scene.store._file.size)
    assert max(sizes) < 11_000
    assert (tmp_path / "store.log").stat().st_size < 11_000 + Knobs().store_reserved
    assert sum(after < before for before, after in pairwise(sizes)) >= 8
    assert scene.store.number > 400
    scene.store.close()
    again = Store(str(tmp_path), lambda *arguments: None)
    assert again.load("r") == {"stays": "x" * 100, "k": f"{399:0200}"}
    again.close()


def test_a_renewal_that_the_disk_refuses_costs_nothing_but_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, data: bytes, mode: int) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("waterclock.broker.store.file.write_whole", refuse)
    with turned(Knobs(store_renew=1000)):
        scene = Scene(tmp_path)
    for number in range(50):
        scene.put("k", f"{number:0100}")
    assert scene.until(50) == [("k", True)] * 50
    scene.store.close()
    again = Store(str(tmp_path), lambda *arguments: None)
    assert again.load("r") == {"k": f"{49:0100}"}
    again.close()


def test_a_renewal_that_fails_behind_its_rename_ends_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(Exception):
        """In place of the process's end."""

    def refuse(path: str, data: bytes, mode: int) -> NoReturn:
        write_whole(path, data, mode)
        raise OSError(5, "the folder is not flushed")

    def end(error: Exception) -> NoReturn:
        raise Ended

    file = StoreFile(str(tmp_path / "store.log"), 0, 0)
    file.append([Row("r", "k", b"1")])
    monkeypatch.setattr("waterclock.broker.store.file.write_whole", refuse)
    monkeypatch.setattr("waterclock.broker.store.file.flush_failed", end)
    with pytest.raises(Ended):
        file.renew({"r": {"k": b"1"}})
    file.close()


def test_nobody_but_its_owner_may_read_it_however_often_it_was_renewed(tmp_path: Path) -> None:
    file = StoreFile(str(tmp_path / "store.log"), 0, 0)
    file.append([Row("r", "k", b"1")])
    file.renew({"r": {"k": b"1"}})
    file.close()
    assert (tmp_path / "store.log").stat().st_mode & 0o077 == 0


def test_after_the_end_nobody_is_told_and_it_is_kept_all_the_same(tmp_path: Path) -> None:
    calls: list[Callable[[], Any]] = []
    store = Store(str(tmp_path), lambda deed, *arguments: calls.append(lambda: deed(*arguments)))
    told: list[bool] = []
    store.put("n", "k", 1, told.append)
    store.close()
    for call in calls:
        call()
    assert (told, len(calls)) == ([], 1)
    assert Store.kept_at(str(tmp_path), "n") == {"k": 1}
