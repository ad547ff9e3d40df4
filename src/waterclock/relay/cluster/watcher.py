"""What a relay asks of the cluster while it works, through its one AdminClient: each one more would have threads and
connections of its own.

Rule 1: no answer is waited for: something is asked in one step, and heard in a later one. What is asked again and again is
        not asked anew before its answer was heard.
Rule 2: who hears gets the answers as librdkafka has them: a future that is done, of a value or of a KafkaException.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import AdminClient

from waterclock.clock import WallClock

Answers = Mapping[Any, Any]  # futures, by what was asked


@dataclass(slots=True)
class _Question:
    every_ns: int
    what: Callable[[], Answers]
    hear: Callable[[Answers], object]
    next_ns: int
    answers: Answers | None = None


class Watcher:
    """Asks by `client`; time is `clock`'s. For the relay's thread."""

    def __init__(self, client: AdminClient, clock: WallClock) -> None:
        self.client = client
        self.clock = clock
        self._questions: list[_Question] = []
        self._once: list[tuple[Answers, Callable[[Answers], object]]] = []

    def ask(self, every_ns: int, what: Callable[[], Answers], hear: Callable[[Answers], object]) -> None:
        """Have `what` asked each `every_ns`, for the first time when they are over, and its answers heard."""
        self._questions.append(_Question(every_ns, what, hear, self.clock.monotonic_ns() + every_ns))

    def once(self, answers: Answers, hear: Callable[[Answers], object]) -> None:
        """Have the answers heard to what was asked just now."""
        self._once.append((answers, hear))

    @property
    def is_waiting(self) -> bool:
        """Whether something was asked that was not heard yet."""
        return bool(self._once) or any(each.answers is not None for each in self._questions)

    def step(self) -> None:
        """Hear what was answered by now, and ask what it is time for. Raises what those who hear raise."""
        once, self._once = self._once, []
        for answers, hear in once:
            if _are_done(answers):
                hear(answers)
            else:
                self._once.append((answers, hear))
        now_ns = self.clock.monotonic_ns()
        for each in self._questions:
            if each.answers is None and now_ns >= each.next_ns:
                each.next_ns = now_ns + each.every_ns
                each.answers = each.what()
            elif each.answers is not None and _are_done(each.answers):
                answers, each.answers = each.answers, None
                each.hear(answers)


def _are_done(answers: Answers) -> bool:
    return all(future.done() for future in answers.values())
