"""What a ManualLoop waits for in real time before its own moves on (rules 3 and 4 of manual_loop.py)."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from typing import Any

import pytest

from waterclock import AsyncTimer, ManualClock, ManualLoop, Timer, manual_loop
from waterclock.errors import UsageError

SLOW_S = 0.3  # a peer that is slower than the 0.05 seconds that everybody had


def test_a_process_that_takes_its_time_is_heard_before_a_timeout_comes() -> None:
    async def main() -> tuple[bytes, float]:
        script = f"import threading; threading.Event().wait({SLOW_S}); print(input().upper())"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(b"hello\n"), 30)
        return out, asyncio.get_running_loop().time()

    with manual_loop(sockets="allowed", patience_s=60) as loop:
        assert loop.run_until_complete(main()) == (b"HELLO\n", 0.0)


@pytest.mark.parametrize("named", [{"sockets": "allowed", "patience_s": 60}, {"patience_s": 60}])
def test_a_thread_that_answers_through_a_queue_is_heard_before_a_timeout_comes(named: dict[str, Any]) -> None:
    asked: queue.Queue[Any] = queue.Queue()

    def serve() -> None:
        while (ask := asked.get()) is not None:
            threading.Event().wait(SLOW_S)
            loop.call_soon_threadsafe(ask[1].put_nowait, ask[0] * 2)

    async def main() -> tuple[int, float]:
        answers: asyncio.Queue[int] = asyncio.Queue()
        asked.put((21, answers))
        return await asyncio.wait_for(answers.get(), 30), asyncio.get_running_loop().time()

    thread = threading.Thread(target=serve)
    thread.start()
    with manual_loop(**named) as loop:
        assert loop.run_until_complete(main()) == (42, 0.0)
    asked.put(None)
    thread.join()


def test_who_has_no_patience_does_not_wait_for_threads() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    with manual_loop() as loop:
        loop.run_until_complete(asyncio.sleep(86_400))  # and is over at once
        assert loop._patience_s == 0
    stop.set()
    thread.join()
    assert ManualLoop(sockets="allowed", patience_s=0).close() is None  # type: ignore[func-returns-value]
    with pytest.raises(ValueError, match="patience_s must be zero or more, got -1"):
        ManualLoop(patience_s=-1)


def test_a_job_of_anyios_threads_is_waited_for_before_time_moves() -> None:
    to_thread = pytest.importorskip("anyio.to_thread")

    async def main() -> tuple[Any, float]:
        slow = threading.Event()
        async with asyncio.timeout(30):
            return await to_thread.run_sync(slow.wait, SLOW_S), asyncio.get_running_loop().time()

    with manual_loop() as loop:
        assert loop.run_until_complete(main()) == (False, 0.0)
        loop.run_until_complete(asyncio.sleep(60))  # an idle thread holds nobody
        assert loop.time() == 60.0


@pytest.mark.parametrize("seconds", [1e10, 1e18, 1e300])
def test_who_sleeps_for_longer_than_any_time_sleeps_for_ever_and_ends_nothing(seconds: float) -> None:
    async def main() -> None:
        sleeper = asyncio.ensure_future(asyncio.sleep(seconds))
        await asyncio.sleep(60)
        assert not sleeper.done()
        sleeper.cancel()

    with manual_loop() as loop:
        loop.run_until_complete(main())
        with pytest.raises(UsageError, match="nothing is due"):
            loop.run_until_complete(asyncio.sleep(seconds))


def test_a_timer_of_a_thread_is_refused_by_the_loops_clock_and_taken_when_the_loop_is_closed() -> None:
    clock = ManualClock()
    with manual_loop(clock), pytest.raises(UsageError, match=r"use AsyncTimer\(clock=loop.clock\)"):
        Timer(clock=clock)
    timer = Timer(clock=clock)
    timer.call_later(5, int)
    assert timer.advance(5) == 1


def test_the_advice_of_that_error_works() -> None:
    async def main(loop: ManualLoop) -> None:
        timer, ran = AsyncTimer(clock=loop.clock), list[float]()
        timer.call_later(5, lambda: ran.append(loop.time()))
        await asyncio.sleep(6)
        assert ran == [5.0]

    with manual_loop() as loop:
        loop.run_until_complete(main(loop))


def test_a_kafka_client_finds_our_own_broker() -> None:
    aiokafka, testing = pytest.importorskip("aiokafka"), pytest.importorskip("waterclock.testing")

    async def main(bootstrap: str) -> bytes:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait("letters", b"hello")
        consumer = aiokafka.AIOKafkaConsumer("letters", bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        async with consumer:
            value: bytes = (await consumer.getone()).value
            return value

    with testing.Broker() as broker, manual_loop(sockets="allowed", patience_s=20) as loop:
        broker.create_topic("letters")
        assert loop.run_until_complete(main(broker.bootstrap)) == b"hello"
