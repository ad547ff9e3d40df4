"""A leader that stood still while its follower was promoted answers nobody from before: standing still is played here by
its loop's thread, and by SIGSTOP in `frozen.py`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.broker.replication.frozen import Asker, check, committed
from tests.broker.replication.pairs import Pair, client, pair, until, values
from waterclock import ManualClock, SystemClock
from waterclock.broker import Broker
from waterclock.broker.replication import deposing, lease, standing
from waterclock.broker.replication.lease import ASKER, LEASE_S, MOST_HELD, Lease
from waterclock.broker.replication.standing import LATER, Standing, Watch, Word
from waterclock.broker.security.link import OPEN

FETCH = 1
FOLLOWER = "waterclock-follower@127.0.0.1:1/" + "0" * 32


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """A pair with a short lease."""
    for module, name, value in (
        (lease, "LEASE_S", 0.4),
        (deposing, "OVER_S", 0.5),
        (standing, "EVERY_S", 0.1),
        (standing, "PATIENCE_S", 0.1),
        (standing, "SILENT_S", 0.3),
    ):
        monkeypatch.setattr(module, name, value)
    with pair(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as brokers:
        yield brokers


@contextmanager
def stopped(broker: Broker) -> Iterator[None]:
    """The broker's thread stands still, as a process that was stopped."""
    begun, over = threading.Event(), threading.Event()

    def stand_still() -> None:
        begun.set()
        over.wait(30)

    thread = threading.Thread(target=broker.call, args=(stand_still,))
    thread.start()
    begun.wait(30)
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_leader_that_thaws_tells_nobody_what_was_committed_before(both: Pair) -> None:
    """Both kinds of client: one whose question lay in the socket, and one that asks as soon as it can."""
    with client(both.one) as before, client(both.one) as after:
        committed(before, 1)
        with stopped(both.one):
            both.two.promote()
            with client(both.two) as new:
                committed(new, 500)
            asked = Asker(before)
        assert asked.answer() in (500, None)
        assert Asker(after).answer() in (500, None)
    until(lambda: not both.one.leads)


def test_a_promoted_leader_lets_nobody_in_before_the_lease_of_a_silent_one_is_over(both: Pair) -> None:
    clock = SystemClock()
    with stopped(both.one):
        began_s = clock.monotonic_s()
        both.two.promote()
        assert clock.monotonic_s() - began_s >= deposing.OVER_S


def test_a_promoted_leader_does_not_wait_for_one_that_hears_of_it_or_is_gone(
    both: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deposing, "OVER_S", 3600.0)
    both.two.promote()
    until(lambda: not both.one.leads)
    both.synced(both.two)
    both.two.cut_power()
    both.one.promote()
    assert both.one.leads


def test_who_starts_as_a_promoted_leader_waits_for_a_silent_one_too(both: Pair) -> None:
    """It may have died before it told anybody."""
    clock = SystemClock()
    with stopped(both.one):
        both.two.promote()
        both.two.cut_power()
        began_s = clock.monotonic_s()
        both.again("two").start()
        assert both.two.leads
        assert clock.monotonic_s() - began_s >= deposing.OVER_S


def test_who_was_promoted_and_died_leads_again_though_the_old_leader_leads_too(both: Pair) -> None:
    """By its later epoch: to follow the old one it would have to throw away what it acknowledged."""
    with stopped(both.one):
        both.two.promote()
        with client(both.two) as raw:
            assert raw.produce("t", b"of the new one", acks=1)[0] == 0
        both.two.close()
    until(lambda: both.one.call(lambda: both.one.inside.lease.holds))
    both.again("two").start()
    assert both.two.leads
    until(lambda: not both.one.leads)
    both.synced(both.two)
    assert values(both.one) == [b"of the new one"]


def test_a_leader_that_stood_still_goes_on_if_its_follower_still_follows(both: Pair) -> None:
    with client(both.one) as raw:
        committed(raw, 7)
        with stopped(both.one):
            asked = Asker(raw)
            threading.Event().wait(0.6)  # longer than the lease
        assert asked.answer() == 7


def test_a_leader_whose_follower_is_gone_goes_on_at_once(both: Pair) -> None:
    with client(both.one) as raw:
        committed(raw, 7)
        both.two.close()
        until(lambda: both.one.call(lambda: not both.one.inside.lease.holds or True))
        for _ in range(20):
            assert Asker(raw).answer() == 7
            threading.Event().wait(0.03)


def test_a_leader_whose_follower_is_silent_goes_on_after_a_while_and_says_so(
    both: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), client(both.one) as raw, stopped(both.two):
        until(lambda: not both.one.call(lambda: both.one.inside.lease.holds))
        assert Asker(raw).answer() == -1
        assert "two brokers lead" in caplog.text
        for _ in range(10):
            assert Asker(raw).answer() == -1
            threading.Event().wait(0.05)
    until(lambda: both.one.call(lambda: both.one.inside.watch.says) == "")


def test_the_follower_is_not_dropped_from_the_in_sync_set_while_nobody_knows_who_leads(both: Pair) -> None:
    """It may be the leader: what waits for it with acks=all must not be acknowledged without it."""
    core = both.one.inside

    def drop() -> bool:
        core.lease.begin()
        for state in core.replicas._states.values():
            state.caught_up_ns = -(1 << 62)
        core._drop_laggards()
        return all(state.in_sync for state in core.replicas._states.values())

    assert both.one.call(drop)


@pytest.mark.long(seconds=25)
def test_a_leader_process_that_thaws_never_answers_from_before(tmp_path: Path, campaign_seed: int) -> None:
    assert check(tmp_path, campaign_seed, rounds=6)


def test_a_leader_process_that_was_stopped_and_thaws_does_not_answer_from_before(tmp_path: Path) -> None:
    assert check(tmp_path, seed=1, rounds=1)


# The lease alone


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
        self.lease = Lease(self.clock.monotonic_ns)
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

    def __init__(self, scene: Scene, *answers: tuple[Standing, float]) -> None:
        self._scene, self._answers = scene, list(answers)

    async def ask(self) -> Standing:
        said, took_s = self._answers.pop(0)
        self._scene.clock.advance_s(took_s)
        return said

    def close(self) -> None:
        pass

    async def all(self, watch: Watch) -> None:
        while self._answers:
            began_ns = self._scene.clock.monotonic_ns()
            watch._take(self.address, await self.ask(), began_ns)


def heard(*answers: tuple[Standing, float]) -> tuple[Scene, list[tuple[str, int]]]:
    """A leader of epoch 4 after these answers, each with the time that it took."""
    scene, deposed = Scene(), []
    watch = Watch(scene.lease, lambda: 4, lambda address, epoch: deposed.append((address, epoch)))
    told: Any = Told(scene, *answers)
    watch.follow(told)
    asyncio.run(told.all(watch))
    return scene, deposed


SILENT = Standing(Word.SILENT, why="it does not answer")


@pytest.mark.parametrize("said", [Standing(Word.FOLLOWS), Standing(Word.GONE), Standing(Word.LEADS, 3)])
def test_a_follower_that_follows_is_gone_or_leads_in_an_earlier_epoch_lets_the_leader_go_on(said: Standing) -> None:
    scene, deposed = heard((said, 0.1))
    assert (scene.lease.holds, deposed) == (True, [])


@pytest.mark.parametrize("epoch", [5, LATER])
def test_one_that_leads_in_a_later_epoch_deposes(epoch: int) -> None:
    scene, deposed = heard((Standing(Word.LEADS, epoch), 0.1))
    assert (scene.lease.holds, deposed) == (False, [("there", epoch)])


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


def test_a_question_is_answered_by_a_follower_a_leader_a_stranger_and_nobody(both: Pair) -> None:
    async def ask(question: standing.Question) -> Standing:
        said = await question.ask()
        question.close()
        await asyncio.sleep(0)
        return said

    def word(address: str, node: int, cluster: str | None) -> Standing:
        return asyncio.run(ask(standing.Question(address, node, cluster, OPEN)))

    cluster = both.one.call(lambda: both.one.inside.identity.cluster)
    assert word(both.two.bootstrap, 1, cluster) == Standing(Word.FOLLOWS)
    assert word(both.one.bootstrap, 2, cluster) == Standing(Word.LEADS, 0)
    assert word(both.two.bootstrap, 1, "another").word is Word.GONE
    both.two.close()
    assert word(both.two.bootstrap, 1, cluster).word is Word.GONE
    with stopped(both.one):
        assert word(both.one.bootstrap, 2, cluster).word is Word.SILENT


def test_nothing_waits_where_the_lease_holds(both: Pair) -> None:
    with RawClient(both.one.bootstrap) as raw:
        for _ in range(50):
            assert raw.produce("t", b"x")[0] == 0
    assert both.one.call(lambda: both.one.inside.lease.holds)
