"""A read that waits for enough to read, but not for ever: `python -m examples.purgatory.long_poll`.

The reader says how much is worth an answer (`min_bytes`) and how long it waits at most (`max_wait_s`). It is answered
when so much is there, when one of its logs was closed, or when the time is over; with whatever is there then.
"""

from __future__ import annotations

from collections.abc import Callable

from waterclock import DelayedOperation, ManualClock, Purgatory, Timer

Answer = dict[str, bytes]


class Log:
    """One partition: bytes, and whether more may come."""

    def __init__(self) -> None:
        self.data = b""
        self.closed = False


class LongPoll:
    """One read from several logs, each from a position."""

    def __init__(
        self, logs: dict[str, Log], positions: dict[str, int], min_bytes: int, respond: Callable[[Answer], None]
    ) -> None:
        self.logs = logs
        self.positions = positions
        self.min_bytes = min_bytes
        self.respond = respond

    def enough(self, op: DelayedOperation) -> bool:
        """Counts and copies nothing: it is asked for every write."""
        if any(self.logs[name].closed for name in self.positions):
            return True
        there = sum(len(self.logs[name].data) - position for name, position in self.positions.items())
        return there >= self.min_bytes

    def answer(self, op: DelayedOperation) -> None:
        """Read now, whatever the outcome: more may have come since the question."""
        self.respond({name: self.logs[name].data[position:] for name, position in self.positions.items()})


class Broker:
    """Logs by name, and readers that wait for them."""

    def __init__(self, purgatory: Purgatory, names: list[str]) -> None:
        self.purgatory = purgatory
        self.logs = {name: Log() for name in names}

    def poll(
        self, positions: dict[str, int], min_bytes: int, max_wait_s: float, respond: Callable[[Answer], None]
    ) -> None:
        """Answer with what stands behind these positions when there is enough."""
        read = LongPoll(self.logs, positions, min_bytes, respond)
        self.purgatory.try_complete_else_watch(DelayedOperation(read.enough, read.answer, max_wait_s), list(positions))

    def append(self, name: str, data: bytes) -> None:
        """Write, and wake who waits for it."""
        self.logs[name].data += data
        self.purgatory.check_and_complete(name)

    def close(self, name: str) -> None:
        """Nothing will come any more."""
        self.logs[name].closed = True
        self.purgatory.check_and_complete(name)


def main() -> None:
    timer = Timer(clock=ManualClock())
    broker = Broker(Purgatory("fetch", timer), ["orders-0", "orders-1"])
    broker.poll({"orders-0": 0, "orders-1": 0}, 8, 0.5, lambda answer: print("enough:", answer))
    broker.append("orders-0", b"abcde")
    broker.append("orders-1", b"xyz")
    broker.poll({"orders-0": 5}, 100, 0.5, lambda answer: print("in time:", answer))
    broker.append("orders-0", b"f")
    timer.advance(0.5)


if __name__ == "__main__":
    main()
