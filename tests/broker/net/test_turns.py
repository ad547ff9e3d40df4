"""Fair turns: who asks for much at once has it a slice at a time, and others are served between the slices."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.net.test_limits import VERSIONS, plug, read
from tests.broker.raw_client import RawClient
from tests.broker.record_batches import GZIP, Rec, batch, whole
from tests.conformance.batches import sized, varint
from waterclock.broker import Broker
from waterclock.broker.net import turns
from waterclock.broker.net.turns import MANY, Turns


class Loop:
    """An event loop of which one turn is done at a time."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], Any]] = []

    def call_soon(self, deed: Callable[[], Any]) -> None:
        self.soon.append(deed)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for deed in soon:
            deed()


class Task:
    """`left` slices, of which each takes `ns`."""

    def __init__(self, name: str, left: int, diary: list[str], clock: list[int], ns: int = 0) -> None:
        self.name, self.left, self.diary, self.clock, self.ns = name, left, diary, clock, ns

    def slice(self) -> bool:
        self.diary.append(self.name)
        self.clock[0] += self.ns
        self.left -= 1
        return self.left > 0


@pytest.fixture
def clock() -> list[int]:
    return [0]


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def circle(loop: Loop, clock: list[int]) -> Turns:
    made = Turns(loop)
    made.now_ns = lambda: clock[0]  # type: ignore[assignment]
    return made


def test_tasks_have_their_slices_in_a_circle(circle: Turns, loop: Loop, clock: list[int]) -> None:
    diary: list[str] = []
    for name, left in (("a", 3), ("b", 1), ("c", 2)):
        circle.add(Task(name, left, diary, clock))
    loop.turn()
    assert (diary, loop.soon) == (["a", "b", "c", "a", "c", "a"], [])


def test_a_turn_of_the_loop_ends_with_its_budget_and_the_next_goes_on_there(
    circle: Turns, loop: Loop, clock: list[int]
) -> None:
    diary: list[str] = []
    for name in "abc":
        circle.add(Task(name, 2, diary, clock, turns.BUDGET_NS // 2))
    loop.turn()
    assert diary == ["a", "b"]
    loop.turn()
    assert diary == ["a", "b", "c", "a"]
    loop.turn()
    assert (diary, loop.soon) == (["a", "b", "c", "a", "b", "c"], [])


def test_what_is_added_in_a_slice_has_its_turn_once(circle: Turns, loop: Loop, clock: list[int]) -> None:
    diary: list[str] = []

    class Adds(Task):
        def slice(self) -> bool:
            if self.left > 1:
                circle.add(Task("added", 1, diary, clock))
            return super().slice()

    circle.add(Adds("adds", 2, diary, clock))
    for _ in range(3):
        loop.turn()
    assert (diary, loop.soon) == (["adds", "added", "adds"], [])


def test_work_is_done_in_slices_of_bounded_count_and_time(circle: Turns, loop: Loop, clock: list[int]) -> None:
    done: list[int] = []

    def steps(ns: int) -> Iterator[None]:
        for number in range(3 * MANY):
            done.append(number)
            clock[0] += ns
            yield

    circle.work(steps(0), done.append)  # type: ignore[arg-type]
    assert len(done) == MANY
    done.clear()
    circle.work(steps(turns.SLICE_NS), done.append)  # type: ignore[arg-type]
    assert len(done) == 1


def test_work_that_fails_says_so_and_is_over(circle: Turns, loop: Loop) -> None:
    failed: list[Exception] = []

    def steps() -> Iterator[None]:
        yield
        raise ValueError("boom")

    circle.work(steps(), failed.append)
    assert ([str(error) for error in failed], loop.soon) == (["boom"], [])


# On connections


def slices(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Which connection is served, request by request, from now on."""
    served: list[Any] = []
    table = type(broker.inside.table)
    serve = table.__call__

    def noted(self: Any, connection: Any, data: memoryview) -> None:
        served.append(connection.fd)
        serve(self, connection, data)

    monkeypatch.setattr(table, "__call__", noted)
    return served


def longest_run(served: list[Any]) -> int:
    """How many requests of one connection were served one after the other, while another had some."""
    shared = served[served.index(next(fd for fd in served if fd != served[0])) :]
    longest = run = 0
    for before, fd in zip([None, *shared], shared, strict=False):
        run = run + 1 if fd == before else 1
        longest = max(longest, run)
    return longest


def test_two_that_send_thousands_of_requests_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "BUDGET_NS", 10**12)  # what is looked at is the circle
    with Broker() as broker, closing(plug(broker.bootstrap)) as one, closing(plug(broker.bootstrap)) as two:
        served = slices(broker, monkeypatch)

        def together() -> None:
            for plugged in (one, two):
                plugged.sendall(VERSIONS * 2000)

        broker.call(together)
        for plugged in (one, two):
            size = struct.unpack(">i", read(plugged, 4))[0]
            read(plugged, size + 1999 * (size + 4))
        assert len(served) == 4000
        assert longest_run(served[: 2 * MANY * 10]) <= MANY


def test_who_asks_once_is_served_among_thousands_of_requests_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker, closing(plug(broker.bootstrap)) as flood, closing(plug(broker.bootstrap)) as good:
        served = slices(broker, monkeypatch)

        def together() -> None:
            flood.sendall(VERSIONS * 8000)
            good.sendall(VERSIONS)

        broker.call(together)
        size = struct.unpack(">i", read(good, 4))[0]
        read(good, size)
        others = len(served) - 1
        first = next(place for place, fd in enumerate(served) if served.count(fd) == 1)
        assert first <= 2 * MANY, f"served behind {first} of {others} requests"


# A small batch that holds much


def bomb(keyed: bool) -> bytes:
    """200,000 records in a few kilobytes; the last has no key where not all are to have one."""
    count = 200_000
    one = b"\0\0\0" + sized(b"k") + sized(b"v") + b"\0"
    last = b"\0\0\0" + sized(b"k" if keyed else None) + sized(b"v") + b"\0"
    body = (varint(len(one)) + one) * (count - 1) + varint(len(last)) + last
    return whole(GZIP, gzip.compress(body), [Rec(None, None, 0)] * count, (-1, -1, -1))


@pytest.mark.parametrize(("keyed", "error"), [(True, 0), (False, 87)])
def test_a_batch_of_very_many_records_for_a_compacted_topic_is_looked_through_in_slices(
    keyed: bool, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop once stood still for seconds over a batch of some kilobytes."""
    from tests.conformance.dialogue import produce_fields
    from tests.conformance.wire import Wire

    with Broker() as broker, Wire(broker.bootstrap) as wire, RawClient(broker.bootstrap) as other:
        broker.create_topic("c", settings={"cleanup.policy": "compact"})
        broker.create_topic("t")
        worked: list[Any] = []
        work = Turns.work
        monkeypatch.setattr(Turns, "work", lambda self, *job: worked.append(job) or work(self, *job))
        wire.send("produce", 8, **produce_fields("c", bomb(keyed)))
        wire.send("produce", 8, **produce_fields("c", batch([Rec(b"k", b"behind", 0)])))
        assert other.produce("t", b"v") == (0, 0)
        rows = [wire.receive("produce", 8).responses[0].partition_responses[0] for _ in range(2)]
        assert [row.error_code.value for row in rows] == [error, 0]
        assert rows[1].base_offset == (200_000 if keyed else 0)  # in the order in which they were sent
        assert len(worked) == 2
