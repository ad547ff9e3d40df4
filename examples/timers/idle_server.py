"""A server that closes connections on which nothing came for a while: `python -m examples.timers.idle_server [PORT]`.

Each connection has one timer, which each line moves: twenty thousand connections are twenty thousand timers in one wheel,
of which the loop knows one. With a port it serves until Ctrl-C; without, a short story is played, its time turned by hand.

Rule 1: what ends a connection cancels its timer, whoever ended it.
Rule 2: a client that does not read is idle too: what counts is what it sends.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import suppress

from waterclock import AsyncTimer, ManualClock

IDLE_S = 30.0


class IdleServer:
    """Answers each line in capitals; `closed_idle` counts the connections that it closed itself."""

    def __init__(self, timer: AsyncTimer, idle_s: float = IDLE_S) -> None:
        self.closed_idle = 0
        self._timer, self._idle_s = timer, idle_s

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """One connection, from its first line to its last."""
        idle = self._timer.call_later(self._idle_s, self._close, writer)
        try:
            while line := await reader.readline():
                idle.reschedule(self._idle_s)
                writer.write(line.upper())
                await writer.drain()
        except (ConnectionError, ValueError, asyncio.CancelledError):
            pass  # the client is gone, or sent a line without an end; or the server ends, and its connections with it
        finally:
            idle.cancel()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def _close(self, writer: StreamWriter) -> None:
        self.closed_idle += 1
        writer.transport.abort()  # not close(): that waits for a client that may never read again


async def story() -> None:
    """One client talks and one is silent; a minute passes in no time."""
    with AsyncTimer(clock=ManualClock()) as timer:
        idle = IdleServer(timer)
        async with await asyncio.start_server(idle.serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            talking, silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            for second in (20, 40, 60):
                print(f"after {second} s:", await said(talking, f"still here at {second}\n"))
                timer.advance(20)
            print("silent:", await said(silent, ""), "and closed as idle:", idle.closed_idle)
            for _, writer in (talking, silent):
                writer.close()


async def said(client: tuple[StreamReader, StreamWriter], line: str) -> str:
    """What the server answers to a line; nothing where it has hung up."""
    reader, writer = client
    writer.write(line.encode())
    try:
        return (await reader.readline()).decode().strip() or "nothing"
    except ConnectionError:
        return "nothing"


async def serve(port: int) -> None:
    with AsyncTimer() as timer:
        async with await asyncio.start_server(IdleServer(timer).serve, "127.0.0.1", port) as server:
            await server.serve_forever()


def main(arguments: list[str]) -> None:
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(int(arguments[0])) if arguments else story())


if __name__ == "__main__":
    main(sys.argv[1:])
