"""The turns of all partitions that one relay owns: begun one after the other, committed side by side.

    wanted       which of the owners have something for a turn
    begin        each of these, in the relay's own thread: what it delivers and settles is handed to the client
    end          each in a thread: it waits for Kafka, while the next one is begun, and others wait too
    mark         each in the relay's own thread again; or undo, if Kafka refused something of it

Rule 1: all have ended when `run` comes back, those that failed too. So nothing else that the relay does meets a turn on
        its way: not what comes in, no checkpoint, nothing that the group takes away or gives.
Rule 2: turns know nothing of each other: a partition has its own producer and its own transaction. One that fails is the
        matter of its owner alone, and the others are marked.
Rule 3: at most `AT_ONCE` are on their way. Each has up to `owner.TURN_BYTES` with the client.
Rule 4: if the relay itself ends meanwhile (Ctrl-C, an error that no other attempt mends), what is on its way is given
        up: nobody waits for Kafka's answer, and the next owner reads in the logs what became of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from waterclock.relay.owner.owner import CHECKPOINT_NS, Owner
from waterclock.relay.owner.turn import Turn
from waterclock.relay.statistics import Counts

AT_ONCE: Final = 4
MOST_WAITING: Final = 50_000  # commands that wait for the end of the input to be reached
MOST_LETTERS: Final = 1_000  # likewise of dead letters: each is a whole record
Action = Callable[[Owner], int]


class Turns:
    """`counts` hear of what is committed; `of(number, action)` does something with the owner of a partition, and deals with
    its failure."""

    def __init__(self, counts: Counts, of: Callable[[int, Action], int]) -> None:
        self._counts, self._of = counts, of
        self._pool = ThreadPoolExecutor(AT_ONCE, "turns")
        self._under_way: deque[tuple[Turn, Future[None]]] = deque()

    def is_wanted(self, owner: Owner) -> bool:
        """Whether there is something for a turn, and the last one was long enough ago."""
        context = owner.context
        if owner.is_in_doubt:
            owner.catch_up(context.logs.bounds(context.topics.input, owner.number)[1])
        if owner.rest_until_ns > context.clock.monotonic_ns():
            return False
        if not owner.has_caught_up:
            are_many = len(owner.waiting) > MOST_WAITING or len(owner.letters) > MOST_LETTERS
            # one that waits may be for what a copy is of that was not read yet
            return are_many and owner.log_span.moves.end <= owner.position
        if not owner.is_quiet(0):
            return True
        # the group hears how far the input was read: seldom, if nothing is delivered
        since_ns = context.clock.monotonic_ns() - owner.rest_until_ns
        return owner.command_position < owner.position and since_ns >= CHECKPOINT_NS

    def run(self, owners: Sequence[Owner]) -> int:
        """A turn of each; how much was committed, and so nothing if none was."""
        done = 0
        try:
            for owner in owners:
                if len(self._under_way) == AT_ONCE:
                    done += self._finish()
                self._of(owner.number, self._begin)
            while self._under_way:
                done += self._finish()
        finally:
            for turn, _ in self._under_way:  # rule 4
                turn.owner.producer.give_up()
            wait([ended for _, ended in self._under_way])
            self._under_way.clear()
        return done

    def _begin(self, owner: Owner) -> int:
        turn = Turn(owner, self._counts)
        turn.begin()
        self._under_way.append((turn, self._pool.submit(turn.end)))
        return 1

    def _finish(self) -> int:
        """Wait for the one that was begun first, and mark it."""
        turn, ended = self._under_way[0]
        wait([ended])
        self._under_way.popleft()

        def mark(owner: Owner) -> int:
            ended.result()
            turn.undo() if turn.is_thrown_away else turn.mark()
            return max(1, turn.carried)  # or at least the position of the commands

        return self._of(turn.owner.number, mark)

    def close(self) -> None:
        """No more turns."""
        self._pool.shutdown()
