"""The leader's lease and what its follower says, alone, with time turned by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from waterclock import ManualClock
from waterclock.broker.replication.lease import (
    ASKER,
    LATER,
    LEASE_S,
    MOST_HELD,
    FollowerWatch,
    LeaderLease,
    LeadershipReply,
    Word,
)

FETCH = 1
FOLLOWER = "waterclock-follower@127.0.0.1:1/" + "0" * 32


class Line:
    """A connection."""

    def __init__(self, client_id: str = "") -> None:
        self.client_id, self.fd = client_id, 1

    def peer(self) -> str:
        return "here"

    def close(self) -> None:
        self.fd = -1


class Server:
    """Notes what it serves."""

    def __init__(self) -> None:
        self.keeps: Any = None
        self.served: list[bytes] = []

    def __call__(self, connection: Any, data: memoryview, /) -> None:
        if self.keeps is None or not self.keeps(connection, FETCH, data):
            self.served.append(bytes(data))


class Scene:
    def __init__(self) -> None:
        self.clock, self.server = ManualClock(), Server()
        self.lease = LeaderLease(self.clock.monotonic_ns)
        self.lease.guard(self.server)

    def ask(self, what: bytes, line: Line | None = None) -> None:
        self.server(line or Line(), memoryview(what))

    def follows(self) -> None:
        self.lease.begin()
        self.lease.renew(self.clock.monotonic_ns())


def test_without_a_follower_nothing_is_looked_at() -> None:
    scene = Scene()
    scene.clock.advance_s(10 * LEASE_S)
    assert (scene.server.keeps, scene.lease.holds) == (None, True)


def test_what_is_read_after_the_lease_waits_for_the_next_and_keeps_its_order() -> None:
    scene, line = Scene(), Line()
    scene.follows()
    scene.ask(b"1", line)
    scene.clock.advance_s(LEASE_S + 0.001)
    for what in (b"2", b"3"):
        scene.ask(what, line)
    assert scene.server.served == [b"1"]
    assert scene.lease.asked.is_set()
    scene.lease.renew(scene.clock.monotonic_ns())
    scene.ask(b"4", line)
    assert scene.server.served == [b"1", b"2", b"3", b"4"]
    assert not scene.lease.asked.is_set()


def test_a_follower_that_has_not_said_anything_yet_gives_no_lease() -> None:
    scene = Scene()
    scene.lease.begin()
    scene.ask(b"1")
    assert scene.server.served == []


def test_an_answer_to_a_question_from_before_the_leader_stood_still_gives_none() -> None:
    scene = Scene()
    scene.follows()
    began_ns = scene.clock.monotonic_ns()
    scene.clock.advance_s(LEASE_S + 0.001)
    scene.ask(b"1")
    scene.lease.renew(began_ns)
    assert scene.server.served == []
    assert scene.lease.asked.is_set()


def test_who_logs_in_and_the_other_broker_are_served_without_a_lease() -> None:
    scene = Scene()
    scene.lease.begin()
    scene.ask(b"1", Line(FOLLOWER))
    scene.ask(b"2", Line(ASKER))
    assert scene.server.served == [b"1", b"2"]
    assert [scene.lease.keeps(Line(), key, memoryview(b"")) for key in (17, 18, 36, 3)] == [False, False, False, True]


def test_a_lost_lease_closes_whoever_asks_and_never_comes_back() -> None:
    scene, held, asking = Scene(), Line(), Line()
    scene.lease.begin()
    scene.ask(b"1", held)
    scene.lease.lose()
    scene.lease.renew(scene.clock.monotonic_ns())
    scene.ask(b"2", asking)
    assert (held.fd, asking.fd, scene.server.served) == (-1, -1, [])


def test_no_more_is_held_than_there_is_room_for() -> None:
    scene, large, small = Scene(), Line(), Line()
    scene.lease.begin()
    scene.ask(b"x" * MOST_HELD, large)
    scene.ask(b"x", small)
    assert (large.fd, small.fd) == (1, -1)


def test_a_held_request_that_cannot_be_understood_closes_its_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    scene, bad, good = Scene(), Line(), Line()
    serve = scene.server

    class Broken(Server):
        def __call__(self, connection: Any, data: memoryview, /) -> None:
            if bytes(data) == b"bad" and self.keeps(connection, FETCH, data) is False:
                raise ValueError("bad")
            super().__call__(connection, data)

    scene.lease.guard(serve := Broken())
    scene.lease.begin()
    serve(bad, memoryview(b"bad"))
    serve(good, memoryview(b"good"))
    scene.lease.renew(scene.clock.monotonic_ns())
    assert (bad.fd, good.fd, serve.served) == (-1, 1, [b"good"])
    assert "closed the connection" in caplog.text


# What the follower says


class Told:
    """A `Question` whose answers are given."""

    address = "there"

    def __init__(self, scene: Scene, *answers: tuple[LeadershipReply, float]) -> None:
        self._scene, self._answers = scene, list(answers)

    async def ask(self) -> LeadershipReply:
        said, took_s = self._answers.pop(0)
        self._scene.clock.advance_s(took_s)
        return said

    def close(self) -> None:
        pass

    async def all(self, watch: FollowerWatch) -> None:
        while self._answers:
            began_ns = self._scene.clock.monotonic_ns()
            watch._take(self.address, await self.ask(), began_ns)


def heard(*answers: tuple[LeadershipReply, float]) -> tuple[Scene, list[tuple[str, int]]]:
    """A leader of epoch 4 after these answers, each with the time that it took."""
    scene, deposed = Scene(), []
    watch = FollowerWatch(scene.lease, 4, lambda address, epoch: deposed.append((address, epoch)))
    told: Any = Told(scene, *answers)
    watch.follow(told)
    asyncio.run(told.all(watch))
    return scene, deposed


SILENT = LeadershipReply(Word.SILENT, why="it does not answer")


@pytest.mark.parametrize(
    "said",
    [
        LeadershipReply(Word.FOLLOWS),
        LeadershipReply(Word.GONE),
        LeadershipReply(Word.LEADS, 3),
        LeadershipReply(Word.LEADS, 4),
    ],
)
def test_a_follower_that_follows_is_gone_or_leads_in_an_earlier_epoch_lets_the_leader_go_on(
    said: LeadershipReply,
) -> None:
    scene, deposed = heard((said, 0.1))
    assert (scene.lease.holds, deposed) == (True, [])


@pytest.mark.parametrize("epoch", [5, LATER])
def test_one_that_leads_in_a_later_epoch_deposes(epoch: int) -> None:
    scene, deposed = heard((LeadershipReply(Word.LEADS, epoch), 0.1))
    assert (scene.lease.holds, deposed) == (False, [("there", epoch)])


def test_an_answer_counts_from_when_it_was_asked_for_however_long_it_was_under_way() -> None:
    scene, _ = heard((LeadershipReply(Word.FOLLOWS), LEASE_S + 0.001))
    assert not scene.lease.holds


def test_silence_is_borne_for_a_while() -> None:
    assert [heard(*[(SILENT, 1.0)] * count)[0].lease.holds for count in (1, 2, 3)] == [False, False, True]


def test_a_question_that_was_asked_before_the_leader_stood_still_counts_for_nothing() -> None:
    assert [heard((SILENT, 3600.0), *[(SILENT, 1.0)] * count)[0].lease.holds for count in (0, 2, 3)] == [
        False, False, True,
    ]  # fmt: skip


def test_one_that_goes_on_alone_goes_on_and_after_standing_still_asks_as_long_again() -> None:
    alone = [(SILENT, 1.0)] * 3
    assert heard(*alone, *alone)[0].lease.holds
    assert not heard(*alone, (SILENT, 3600.0))[0].lease.holds
    assert not heard(*alone, (SILENT, 3600.0), (SILENT, 1.0))[0].lease.holds
    assert heard(*alone, (SILENT, 3600.0), *alone)[0].lease.holds
