"""A leader that stood still while its follower was promoted answers nobody from before: standing still is played here by
its loop's thread, and by SIGSTOP in `frozen.py`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.broker.replication.frozen import Asker, check, committed
from tests.broker.replication.pairs import Pair, client, pair, until, values
from waterclock import SystemClock
from waterclock.broker import Broker
from waterclock.broker.replication import lease, tenure
from waterclock.broker.replication.lease import LeadershipReply, Question, Word
from waterclock.broker.security.link import OPEN


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """A pair with a short lease."""
    for module, name, value in (
        (lease, "LEASE_S", 0.4),
        (tenure, "OVER_S", 0.5),
        (lease, "EVERY_S", 0.1),
        (lease, "PATIENCE_S", 0.1),
        (lease, "SILENT_S", 0.3),
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
        assert clock.monotonic_s() - began_s >= tenure.OVER_S


def test_a_promoted_leader_does_not_wait_for_one_that_hears_of_it_or_is_gone(
    both: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenure, "OVER_S", 3600.0)
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
        assert clock.monotonic_s() - began_s >= tenure.OVER_S


def test_who_was_promoted_and_died_leads_again_though_the_old_leader_leads_too(both: Pair) -> None:
    """By its later epoch: to follow the old one it would have to throw away what it acknowledged."""
    with stopped(both.one):
        both.two.promote()
        with client(both.two) as raw:
            assert raw.produce("t", b"of the new one", acks=1)[0] == 0
        both.two.close()
    until(lambda: both.one.call(lambda: both.one.inside.tenure.lease.holds))
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


def test_a_batch_that_was_held_is_appended_like_any_other(both: Pair) -> None:
    """The broker writes the offset into the bytes that came."""
    with client(both.one) as raw:
        with stopped(both.one):
            raw.send_produce("t", b"x")
            threading.Event().wait(0.6)  # longer than the lease
        assert raw.produced() == (0, 0)


def test_a_leader_whose_follower_is_gone_goes_on_at_once(both: Pair) -> None:
    with client(both.one) as raw:
        committed(raw, 7)
        both.two.close()
        until(lambda: both.one.call(lambda: not both.one.inside.tenure.lease.holds or True))
        for _ in range(20):
            assert Asker(raw).answer() == 7
            threading.Event().wait(0.03)


def test_a_leader_whose_follower_is_silent_goes_on_after_a_while_and_says_so(
    both: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), client(both.one) as raw, stopped(both.two):
        until(lambda: not both.one.call(lambda: both.one.inside.tenure.lease.holds))
        assert Asker(raw).answer() == -1
        assert "two brokers lead" in caplog.text
        for _ in range(10):
            assert Asker(raw).answer() == -1
            threading.Event().wait(0.05)
    until(lambda: both.one.call(lambda: both.one.inside.tenure.watch.says.last) == "")


def test_the_follower_is_not_dropped_from_the_in_sync_set_while_nobody_knows_who_leads(both: Pair) -> None:
    """It may be the leader: what waits for it with acks=all must not be acknowledged without it."""
    core = both.one.inside

    def drop() -> bool:
        core.tenure.lease.begin()
        for state in core.replicas._states.values():
            state.caught_up_ns = -(1 << 62)
        core._drop_laggards()
        return all(state.in_sync for state in core.replicas._states.values())

    assert both.one.call(drop)


def test_who_was_deposed_answers_nobody_while_it_makes_itself_a_follower(
    both: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is asked first, and takes its time."""
    with client(both.one) as raw:
        committed(raw, 1)
        core = both.one.inside
        commit = core.store.commit
        monkeypatch.setattr(core.store, "commit", lambda *arguments: None)
        both.one.call(lambda: core.depose(both.two.bootstrap, 1))
        assert Asker(raw, stable=False).answer() is None
        monkeypatch.setattr(core.store, "commit", commit)


@pytest.mark.long(seconds=25)
def test_a_leader_process_that_thaws_never_answers_from_before(tmp_path: Path, campaign_seed: int) -> None:
    assert check(tmp_path, campaign_seed, rounds=6)


def test_a_leader_process_that_was_stopped_and_thaws_does_not_answer_from_before(tmp_path: Path) -> None:
    assert check(tmp_path, seed=1, rounds=1)


def test_a_question_is_answered_by_a_follower_a_leader_a_stranger_and_nobody(
    both: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who does not answer is silent after the patience, which is short for that one question alone."""
    monkeypatch.setattr(lease, "PATIENCE_S", 30.0)

    async def ask(asked: Question) -> LeadershipReply:
        said = await asked.ask()
        asked.close()
        await asyncio.sleep(0)
        return said

    def word(address: str, node: int, cluster: str | None) -> LeadershipReply:
        return asyncio.run(ask(Question(address, node, cluster, OPEN)))

    cluster = both.one.call(lambda: both.one.inside.identity.cluster)
    assert word(both.two.bootstrap, 1, cluster) == LeadershipReply(Word.FOLLOWS)
    assert word(both.one.bootstrap, 2, cluster) == LeadershipReply(Word.LEADS, 0)
    assert word(both.two.bootstrap, 1, "another").word is Word.GONE

    async def twice() -> list[Word]:
        asked = Question(both.two.bootstrap, 1, cluster, OPEN)
        words = [(await asked.ask()).word]
        await asyncio.get_running_loop().run_in_executor(None, both.two.close)
        words.append((await asked.ask()).word)
        asked.close()
        return words

    assert asyncio.run(twice()) == [Word.FOLLOWS, Word.GONE]
    monkeypatch.setattr(lease, "PATIENCE_S", 0.1)
    with stopped(both.one):
        assert word(both.one.bootstrap, 2, cluster).word is Word.SILENT


def test_a_follower_that_is_promoted_says_so_on_the_connection_that_it_was_asked_on(
    both: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "PATIENCE_S", 30.0)

    async def twice() -> list[LeadershipReply]:
        asked = Question(both.two.bootstrap, 1, None, OPEN)
        said = [await asked.ask()]
        await asyncio.get_running_loop().run_in_executor(None, both.two.promote)
        said.append(await asked.ask())
        asked.close()
        return said

    assert asyncio.run(twice()) == [LeadershipReply(Word.FOLLOWS), LeadershipReply(Word.LEADS, 1)]


def test_nothing_waits_where_the_lease_holds(both: Pair) -> None:
    with RawClient(both.one.bootstrap) as raw:
        for _ in range(50):
            assert raw.produce("t", b"x")[0] == 0
    assert both.one.call(lambda: both.one.inside.tenure.lease.holds)
