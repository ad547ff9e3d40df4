"""A follower that dies at any step of its promotion: it follows on, or it leads, and a start makes good what is missing."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.replication.pairs import Pair, client, following, has, pair, until
from waterclock.broker import Broker
from waterclock.broker.log.memo import Memo
from waterclock.broker.replication.replica import FollowerReplica
from waterclock.broker.store import Store
from waterclock.broker.wire.errors import Error

WIDE = 3


@contextmanager
def dying_at(step: int, broker: Broker) -> Iterator[list[int]]:
    """Within, the follower's change number `step` of a memo or of its store fails, and all after it."""
    left, follower = [step], following(broker)

    def counted(real: Callable[..., Any], of: Callable[[Any], bool]) -> Callable[..., Any]:
        def change(self: Any, *arguments: Any) -> Any:
            if of(self):
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(errno.EIO, "the process ends here")
            return real(self, *arguments)

        return change

    with pytest.MonkeyPatch.context() as patch:
        mine = [one.memo for one in follower.replica.partitions()]
        patch.setattr(Memo, "save", counted(Memo.save, lambda memo: any(memo is one for one in mine)))
        patch.setattr(Store, "commit", counted(Store.commit, lambda store: store is follower.store))
        yield left


def epochs(broker: Broker) -> list[int]:
    """The last epoch of each partition, as its folder has it."""
    return broker.call(lambda: [Memo.load(one.folder).epoch for one in broker.inside.topics.partitions()])


def begun(both: Pair) -> None:
    both.one.create_topic("wide", WIDE)
    both.synced()


def test_a_promotion_cut_short_at_any_step_leaves_a_broker_that_starts_and_leads_or_follows(tmp_path: Path) -> None:
    """The new epoch stood in the logs before the store knew that it leads: each start ended at once, as long as its leader
    lived: it had never heard of that epoch."""
    ends = []
    for step in count():
        with pair(tmp_path / str(step)) as both:
            begun(both)
            with dying_at(step, both.two) as left:
                both.two.call(lambda: both.two.inside_follower.promote())
                until(lambda: both.two.failure is not None or both.two.leads, "it leads, or ends")
                if left[0] >= 0:
                    break
            both.two.close()
            both.again("two").start()
            ends.append(both.two.leads)
            if not both.two.leads:
                both.synced()
                both.two.promote()
            until(lambda: not both.one.leads, "the old leader has heard of it")
            assert epochs(both.two) == [1] * (1 + WIDE)
            both.synced(both.two)
            with client(both.two) as raw:
                assert raw.produce("t", b"x") == (Error.NONE, 0)
    assert ends == sorted(ends)
    assert set(ends) == {False, True}


def test_what_a_deposed_leader_has_copied_and_not_done_yet_is_done_after_a_crash(tmp_path: Path) -> None:
    """Its journal was on the disk, and nothing said that it was still to be done: the next start began behind it, and what
    the new leader had begun with was never done here."""
    with pair(tmp_path) as both:
        both.two.promote()
        until(lambda: not both.one.leads, "the old leader has heard of it")
        both.one.close()
        both.two.create_topic("later")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FollowerReplica, "_apply", ends)
            both.again("one").start()
            until(lambda: both.one.failure is not None, "it has copied the journal, and ends")
        both.one.close()
        both.again("one").start()
        both.two.create_topic("last")
        both.synced(both.two)
        until(lambda: has(both.one, "last"))
        assert has(both.one, "later")


async def ends(replica: FollowerReplica) -> None:
    if replica.journal.durable > replica._done:
        raise OSError(errno.EIO, "the process ends here")
