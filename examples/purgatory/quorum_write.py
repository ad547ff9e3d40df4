"""A write that is answered when enough replicas hold it: `python -m examples.purgatory.quorum_write`.

A request writes to several partitions and waits for each. A part of it is in one of three states:

    state      leaves it by                                        then
    pending    enough replicas hold the part's last offset         done
               the leader of its partition moved away              error "not leader"
               the request's timeout                               error "timed out"
    done       -                                                   -
    error      -                                                   -

Rule 1: the request is over when no part is pending. A part with an error waits for nothing.
Rule 2: the answer has every part, those that made it before the timeout too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from waterclock import DelayedOperation, ManualClock, Purgatory, Timer

Answer = dict[str, str]


@dataclass
class Partition:
    """How far each replica of one partition has come, and whether its leader is here."""

    quorum: int
    held: dict[str, int] = field(default_factory=dict)  # replica -> the last offset that it holds
    leads: bool = True

    def reached(self, offset: int) -> bool:
        return sum(held >= offset for held in self.held.values()) >= self.quorum


class QuorumWrite:
    """One request: its methods are the callables of its operation."""

    def __init__(
        self, partitions: dict[str, Partition], offsets: dict[str, int], respond: Callable[[Answer], None]
    ) -> None:
        self.partitions = partitions
        self.offsets = offsets
        self.respond = respond
        self.parts: Answer = dict.fromkeys(offsets, "pending")

    def acked(self, op: DelayedOperation) -> bool:
        """Look again at what is pending; over when nothing is."""
        for name, state in self.parts.items():
            if state == "pending":
                self.parts[name] = self._state(name)
        return "pending" not in self.parts.values()

    def answer(self, op: DelayedOperation) -> None:
        """Completed, expired or cancelled: the client gets one answer."""
        left = "timed out" if op.outcome == "expired" else "cancelled"
        self.respond({name: left if state == "pending" else state for name, state in self.parts.items()})

    def _state(self, name: str) -> str:
        partition = self.partitions[name]
        if not partition.leads:
            return "not leader"
        return "done" if partition.reached(self.offsets[name]) else "pending"


class Leader:
    """Takes writes, and hears from the replicas."""

    def __init__(self, purgatory: Purgatory, partitions: dict[str, Partition]) -> None:
        self.purgatory = purgatory
        self.partitions = partitions

    def write(self, offsets: dict[str, int], timeout_s: float, respond: Callable[[Answer], None]) -> None:
        """Answer when a quorum holds these offsets, at once where it does already."""
        request = QuorumWrite(self.partitions, offsets, respond)
        self.purgatory.try_complete_else_watch(
            DelayedOperation(request.acked, request.answer, timeout_s), list(offsets)
        )

    def ack(self, name: str, replica: str, offset: int) -> None:
        """A replica holds everything of this partition up to the offset."""
        self.partitions[name].held[replica] = offset
        self.purgatory.check_and_complete(name)

    def step_down(self, name: str) -> None:
        """Another broker leads this partition now: nobody here can wait for it."""
        self.partitions[name].leads = False
        self.purgatory.check_and_complete(name)


def main() -> None:
    timer = Timer(clock=ManualClock())
    leader = Leader(Purgatory("produce", timer), {name: Partition(quorum=2) for name in ("orders-0", "orders-1")})
    leader.write({"orders-0": 7}, 1.5, lambda answer: print("first:", answer))
    leader.write({"orders-0": 9, "orders-1": 3}, 1.5, lambda answer: print("second:", answer))
    leader.ack("orders-0", "b1", 9)
    leader.ack("orders-0", "b2", 8)  # the first write has its two
    leader.step_down("orders-1")  # the second one waits for orders-0 still
    timer.advance(1.5)


if __name__ == "__main__":
    main()
