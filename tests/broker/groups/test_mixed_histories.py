"""Random histories of groups whose members come and go by either protocol, with restarts: nothing is read by two."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.groups.clients import Person, Turned
from tests.broker.groups.old_readers import COOPERATIVE, EAGER
from tests.broker.groups.random_members import New, Old, Someone, in_order

PARTITIONS = 6


def everything(members: list[Someone], said: str) -> list[int]:
    """What is read by all, each partition once at most."""
    found = [(number, member.name) for member in members for _, number in member.reads]
    numbers = [number for number, _ in found]
    assert len(numbers) == len(set(numbers)), f"{said}: {sorted(found)}"
    return sorted(numbers)


def history(folder: Path, seed: int, way: str, steps: int) -> None:
    chance, said = in_order(seed), f"seed {seed}, {way}"
    served = Turned(data=folder).__enter__()
    maker = Person(served)
    maker.create_topic("t", PARTITIONS)
    maker.close()
    members: list[Someone] = []
    try:
        for step in range(steps):
            now = f"{said}, step {step}"
            doing = chance.random()
            if doing < 0.04 and len(members) < 4:
                kind = chance.choice(["old", "new"])
                name = f"{kind}-{step}"
                members.append(New(served, name) if kind == "new" else Old(served, name, way))
            elif doing < 0.06 and members:
                members.pop(chance.randrange(len(members))).goes()
            elif doing < 0.065 and members:
                members.pop(chance.randrange(len(members))).dies()
            elif doing < 0.07:
                served.__exit__()
                served = Turned(data=folder).__enter__()
                for member in members:
                    member.moves(served)
            elif members:
                chance.choice(members).step()
            served.advance_ms(100)
            everything(members, now)
        if not members:
            members.append(New(served, "last"))
        for _ in range(200):  # at most as long as the longest session
            for _ in range(3):
                for member in members:
                    member.step()
                    everything(members, said)
            if everything(members, said) == list(range(PARTITIONS)):
                return
            served.advance_ms(1_000)
        raise AssertionError(f"{said}: nobody reads all of it: { {m.name: m.reads for m in members} }")
    finally:
        for member in members:
            member.dies()
        served.__exit__()


@pytest.mark.parametrize("way", [EAGER, COOPERATIVE])
def test_no_partition_is_read_by_two(tmp_path: Path, way: str) -> None:
    history(tmp_path, 7, way, 400)  # ten changes of protocol and more, four restarts


@pytest.mark.long(seconds=40)
@pytest.mark.parametrize("way", [EAGER, COOPERATIVE])
def test_nor_in_many_histories(tmp_path: Path, campaign_seed: int, way: str) -> None:
    for number in range(20):
        history(tmp_path / str(number), campaign_seed + number, way, 300)
