"""Several futures and one timeout: `python -m examples.purgatory.futures`.

`when_all` calls back once: at once where all are done, else when the last one is done, or when the time is over. What is
not done by then comes as a TimeoutError; the futures themselves are left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from waterclock import DelayedOperation, ManualClock, Purgatory, Timer


def when_all(
    purgatory: Purgatory,
    futures: list[Future[Any]],
    timeout_s: float,
    then: Callable[[list[Any]], Any],
) -> DelayedOperation:
    """Call `then` with each future's result, or its exception.

    1. Watch under every future. A future that is done between the two questions is seen by the second.
    2. Have every future trigger. One that is done by now triggers at once, so there is no gap behind 1 either.
    """

    def all_done(op: DelayedOperation) -> bool:
        return all(future.done() for future in futures)

    op = DelayedOperation(all_done, lambda op: then([outcome(future) for future in futures]), timeout_s)
    if not purgatory.try_complete_else_watch(op, futures):  # 1
        for future in futures:  # 2
            future.add_done_callback(purgatory.check_and_complete)
    return op


def outcome(future: Future[Any]) -> Any:
    """Its result, its exception, or a TimeoutError where it has none yet."""
    if not future.done():
        return TimeoutError("not done in time")
    if future.cancelled():
        return TimeoutError("cancelled")
    return future.exception() or future.result()


def main() -> None:
    timer = Timer(clock=ManualClock())
    purgatory = Purgatory("futures", timer)
    first, second, third = Future[str](), Future[str](), Future[str]()
    when_all(purgatory, [first, second], 1.0, lambda results: print("both:", results))
    first.set_result("one")
    second.set_result("two")
    when_all(purgatory, [first, third], 1.0, lambda results: print("in time:", results))
    timer.advance(1.0)


if __name__ == "__main__":
    main()
