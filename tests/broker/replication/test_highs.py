"""What readers of a broker that was promoted get: what both brokers had, however often both are started again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("kio")

from tests.broker.replication.pairs import client, high, pair, partition, until
from waterclock.broker import Broker, follower

NOBODY = "127.0.0.1:1"
TWO, ONE = ({"min.insync.replicas": least, "auto.create.topics.enable": "false"} for least in ("2", "1"))


def with_a_tail(folder: Path, settings: dict[str, str]) -> None:
    """`one`, stopped, with a record that both had, and two that it alone has: its follower stood still."""
    with pair(folder, settings) as both, client(both.one) as raw:
        raw.produce("t", b"both")
        both.synced()
        both.freeze()
        raw.produce("t", b"one", b"alone", acks=1)


def shown(broker: Broker) -> tuple[int, int]:
    """The high watermark and the end."""
    return high(broker), broker.call(lambda: partition(broker).end)


def promoted(folder: Path, settings: dict[str, str], starts: int) -> Broker:
    """`one` as a follower that has not heard of its leader, started so often, and promoted."""
    for _ in range(starts):
        Broker(folder / "one", settings=settings, follow=NOBODY).start().close()
    broker = Broker(folder / "one", settings=settings, follow=NOBODY).start()
    broker.promote(unclean=True)
    return broker


@pytest.mark.parametrize("starts", [0, 2])
def test_what_a_promoted_broker_alone_has_is_not_shown(starts: int, tmp_path: Path) -> None:
    """A promotion of the other one would take it back: it was cut there, after it had been read."""
    with_a_tail(tmp_path, TWO)
    with closing(promoted(tmp_path, TWO, starts)) as broker:
        assert shown(broker) == (1, 3)
        with client(broker) as raw:
            assert raw.end("t") == -1  # it may have been more: the client asks again
    with Broker(tmp_path / "one", settings=TWO) as broker:
        assert (broker.leads, shown(broker)) == (True, (1, 3))


def test_with_one_replica_in_sync_enough_all_that_a_promoted_broker_has_is_shown(tmp_path: Path) -> None:
    with_a_tail(tmp_path, ONE)
    with closing(promoted(tmp_path, ONE, 1)) as broker:
        assert shown(broker) == (3, 3)


def test_what_both_had_is_shown_though_the_leader_never_comes_back(tmp_path: Path) -> None:
    with pair(tmp_path, TWO) as both:
        with client(both.one) as raw:
            raw.produce("t", b"a", b"b")
        until(lambda: high(both.two) == 2, "the follower has heard of it")
        both.two.close()
        both.one.close()
        both.again("two").start()
        both.two.promote()
        assert shown(both.two) == (2, 2)
        both.two.close()
        both.again("two").start()
        assert (both.two.leads, shown(both.two)) == (True, (2, 2))


def test_a_follower_remembers_it_while_it_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who loses power has no stop in which to keep it."""
    monkeypatch.setattr(follower, "HIGHS_EVERY_S", 0.02)
    with pair(tmp_path, TWO) as both:
        with client(both.one) as raw:
            raw.produce("t", b"a")
        until(lambda: both.two.call(lambda: both.two.inside_follower.store.load("self").get("high")) == {"t-0": 1})
