"""What takes real time in a ManualLoop: jobs of executors, threads, sockets, processes, and what it waits for before
its own time moves on (rules 3 to 5 of manual_loop.py).
"""

from __future__ import annotations

import asyncio
import copy
import logging
import queue
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from waterclock import AsyncTimer, ManualClock, ManualLoop, SystemClock, Timer, manual_loop
from waterclock.errors import UsageError
from waterclock.timer import manual_loop as module


def test_a_job_of_an_executor_is_waited_for_before_time_moves() -> None:
    async def main() -> list[Any]:
        loop, go = asyncio.get_running_loop(), threading.Event()
        threading.Timer(0.05, go.set).start()
        waited = await asyncio.wait_for(asyncio.to_thread(go.wait, 10), 3600)
        return [waited, loop.time()]

    with manual_loop() as loop:
        assert loop.run_until_complete(main()) == [True, 0.0]
        task = loop.create_task(main())
        loop.advance(10)
        assert task.result() == [True, 0.0]


def test_a_job_that_holds_the_time_for_long_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LONG_S", 0.01)

    async def main() -> None:
        go = threading.Event()
        threading.Timer(0.1, go.set).start()
        await asyncio.to_thread(go.wait, 10)

    with caplog.at_level(logging.WARNING), manual_loop() as loop:
        loop.run_until_complete(main())
    assert "1 jobs of an executor have run for 0.01 real seconds" in caplog.text


def test_who_waits_for_what_cannot_come_is_told_and_nobody_hangs() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with manual_loop() as loop:
        task = loop.create_task(main(), name="the consumer")
        with pytest.raises(UsageError, match=r"nothing is due in this loop, and the consumer waits.*sockets='allowed'"):
            loop.run_until_complete(task)
        loop.advance(60)  # by hand nobody has to have anything to do
        assert not task.done()


def test_a_thread_of_its_own_is_waited_for_where_what_is_outside_is_allowed() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        threading.Timer(0.02, loop.call_soon_threadsafe, [future.set_result, "came"]).start()
        return await future

    with manual_loop(sockets="allowed") as loop:
        assert loop.run_until_complete(main()) == "came"


# Sockets


ASKS: dict[str, Callable[[Any], Any]] = {
    "connection": lambda loop: asyncio.open_connection("127.0.0.1", 1),
    "server": lambda loop: asyncio.start_server(lambda *_: None, "127.0.0.1", 0),
    "name": lambda loop: loop.getaddrinfo("localhost", 80),
    "address": lambda loop: loop.getnameinfo(("127.0.0.1", 80)),
    "read pipe": lambda loop: loop.connect_read_pipe(asyncio.Protocol, sys.stdin),
    "write pipe": lambda loop: loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout),
    "datagrams": lambda loop: loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)),
    "process": lambda loop: asyncio.create_subprocess_exec("true"),
    "shell": lambda loop: asyncio.create_subprocess_shell("true"),
    "unix": lambda loop: asyncio.open_unix_connection("/nowhere"),
    "unix server": lambda loop: asyncio.start_unix_server(lambda *_: None, "/nowhere/at/all"),
}


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_real_sockets_are_refused_with_the_way_to_allow_them(ask: Callable[[Any], Any]) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match=r"turns: real time passes out there.*manual_loop\(sockets='allowed'\)"):
            await ask(asyncio.get_running_loop())

    with manual_loop() as loop:
        loop.run_until_complete(main())


def test_a_file_descriptor_of_ones_own_is_refused_too() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, manual_loop() as loop:
        ours.setblocking(False)
        with pytest.raises(UsageError, match="a file descriptor was asked for"):
            loop.add_reader(ours, print)
        with pytest.raises(UsageError, match="a file descriptor was asked for"):
            loop.run_until_complete(loop.sock_recv(ours, 1))


def test_allowed_sockets_say_what_they_have_to_say_before_time_moves_on() -> None:
    async def main() -> list[Any]:
        loop = asyncio.get_running_loop()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                if line == b"slow\n":
                    await asyncio.sleep(3600)
                writer.write(line.upper())
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"one\n")
        lines: list[Any] = [await asyncio.wait_for(reader.readline(), 30), loop.time()]
        writer.write(b"slow\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 30)
        lines += [loop.time(), await reader.readline(), loop.time()]
        writer.close()
        await writer.wait_closed()
        server.close()
        return lines

    with manual_loop(sockets="allowed") as loop:
        assert loop.run_until_complete(main()) == [b"ONE\n", 0.0, 30.0, b"SLOW\n", 3600.0]


def test_another_word_for_sockets_is_refused() -> None:
    with pytest.raises(ValueError, match="sockets must be 'refused' or 'allowed', got 'perhaps'"):
        ManualLoop(sockets="perhaps")  # type: ignore[arg-type]


def test_an_allowed_process_has_its_time_to_end_before_time_moves_on() -> None:
    """Where a thread tells of its end there is no socket to be waited for, and the timeout came at once."""

    async def main() -> tuple[int, float]:
        process = await asyncio.create_subprocess_exec("true")
        return await asyncio.wait_for(process.wait(), 3600), asyncio.get_running_loop().time()

    with manual_loop(sockets="allowed", patience_s=10) as loop:
        returncode, now_s = loop.run_until_complete(main())
    assert (returncode, now_s) == (0, 0.0)


def test_a_clock_that_nobody_can_turn_is_refused() -> None:
    with pytest.raises(TypeError, match="clock must be a ManualClock, or None for a new one, got <SystemClock>"):
        ManualLoop(SystemClock())  # type: ignore[arg-type]


def test_a_loop_is_not_copied() -> None:
    """A copy that was collected closed the sockets of both."""
    with manual_loop() as loop, pytest.raises(TypeError, match="a ManualLoop is neither copied nor pickled"):
        copy.copy(loop)


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
