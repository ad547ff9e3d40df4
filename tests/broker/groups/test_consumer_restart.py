"""Consumer groups opened again: members, epochs, targets, and the time that runs for them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.groups.clients import Person, Turned, people, stable_group
from tests.broker.groups.consumer_members import readers
from waterclock.broker.wire.errors import Error


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    with Turned(data=tmp_path) as served, readers(served, "ann", "bob") as some:
        ann, bob = some
        ann.instance = "desk-1"
        ann.joins(rebalance=20_000)
        ann.settles()
        bob.joins()
        ann.says()
        served.advance_ms(15_000)
    with Turned(data=tmp_path) as served:
        new = [ann.again(served), bob.again(served)]
        served.advance_ms(19_999)  # a whole rebalance timeout again
        assert new[0].says().member_epoch == 2
        assert new[1].says().assignment is None
        new[0].settles()
        new[1].says()
        assert sorted([*new[0].numbers, *new[1].numbers]) == [0, 1, 2, 3]
        assert new[0].described().group_epoch == 3
        assert new[0].leaves() == new[1].leaves() == Error.NONE
        for reader in new:
            reader.close()
    with Turned(data=tmp_path) as served:
        client = Person(served)
        assert [(row.group_type, row.group_state) for row in client.listed()] == [("consumer", "Empty")]
        client.close()


def test_a_group_that_was_taken_over_stays_what_it_became(tmp_path: Path) -> None:
    with Turned(data=tmp_path) as served, readers(served, "ann") as (ann,), people(served, "bob") as (bob,):
        ann.joins()
        ann.leaves()
        stable_group(bob)
    with Turned(data=tmp_path) as served, people(served, "bob") as (other,):
        other.member, other.generation = bob.member, bob.generation
        assert other.beats() == Error.NONE
        assert [row.group_type for row in other.listed()] == ["classic"]


def test_a_rebalance_timeout_runs_anew(tmp_path: Path) -> None:
    with Turned(data=tmp_path) as served, readers(served, "ann", "bob") as (ann, bob):
        ann.joins(rebalance=20_000)
        ann.settles()
        bob.joins()
        ann.says()
    with Turned(data=tmp_path) as served:
        ann, bob = ann.again(served), bob.again(served)
        served.advance_ms(20_000)
        assert ann.beat().error_code == Error.UNKNOWN_MEMBER_ID
        bob.says()
        assert bob.numbers == [0, 1, 2, 3]
        ann.close()
        bob.close()


def test_a_target_that_nobody_has_heard_of_is_known(tmp_path: Path) -> None:
    with Turned(data=tmp_path) as served, readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        ann.settles()
        bob.joins()
    with Turned(data=tmp_path) as served:
        ann, bob = ann.again(served), bob.again(served)
        targets = [row.target_assignment.topic_partitions[0].partitions for row in ann.described().members]
        assert sorted(number for numbers in targets for number in numbers) == [0, 1, 2, 3]
        assert (ann.says().member_epoch, len(ann.numbers)) == (2, 2)
        ann.close()
        bob.close()


def test_who_was_put_out_is_not_back(tmp_path: Path) -> None:
    with Turned(data=tmp_path) as served, readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        served.advance_ms(30_000)
        bob.joins()
        served.advance_ms(15_000)
        assert len(bob.described().members) == 1
    with Turned(data=tmp_path) as served:
        ann, bob = ann.again(served), bob.again(served)
        assert [row.member_id for row in bob.described().members] == [bob.member]
        ann.close()
        bob.close()
