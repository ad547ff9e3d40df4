"""What takes real time in a ManualLoop: jobs of executors, threads, sockets, processes (rules 3 to 5 of manual_loop.py)."""

from __future__ import annotations

import asyncio
import copy
import logging
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from waterclock import ManualLoop, SystemClock, manual_loop
from waterclock.errors import UsageError
from waterclock.timer import manual_loop as module

# Executors and threads take real time


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
