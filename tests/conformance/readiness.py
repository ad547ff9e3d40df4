"""Coordinators that have read their logs: what a test may take for granted of a broker that has just started."""

from __future__ import annotations

from tests.conformance.dialogue import GROUP, TRANSACTION, Dialogue
from tests.conformance.wire import Wire

# Every partition of the coordinators' topics is read apart; so many names meet all of the four that a test server has.
NAMES = [f"ready-{number}" for number in range(24)]


def await_coordinators(bootstrap: str) -> None:
    """Wait until groups and transactions are answered for."""
    with Wire(bootstrap) as wire:
        await_coordinators_over(wire)


def await_coordinators_over(wire: Wire) -> None:
    """The same, asked over a connection of one who may ask."""
    dialogue = Dialogue(wire)
    for name in NAMES:
        dialogue.find_coordinator(name, GROUP)
        dialogue.find_coordinator(name, TRANSACTION)
        dialogue.settled("heartbeat", 4, group_id=name, generation_id=1, member_id="nobody")
        dialogue.settled("end_txn", 4, transactional_id=name, producer_id=1)
