"""The simulated network: a stream is a stream, and ends as the kernel ends it, or is silent."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("greenlet")

from tests.simulation.scene import Scene
from waterclock.simulation.network import ListeningSocket, Socket
from waterclock.simulation.streams import open_connection
from waterclock.simulation.world import MS

ADDRESS = ("127.0.0.1", 9092)


def connected(scene: Scene) -> tuple[Socket, Socket]:
    """An end of `process`, and that of `other`."""
    server = ListeningSocket(scene.other, scene.network, ADDRESS)
    mine = scene.network.connect(scene.process, ADDRESS)
    scene.pass_s(1)
    return mine, server.accept()[0]


def rest(sock: Socket) -> bytes | type[Exception]:
    """All that is read to the end, or how it ended."""
    found = b""
    try:
        while data := sock.recv(100):
            found += data
    except OSError as error:
        return type(error)
    return found


@pytest.mark.parametrize("seed", range(10))
def test_bytes_arrive_in_their_order_however_they_are_cut(seed: int) -> None:
    scene = Scene(seed)
    mine, theirs = connected(scene)
    scene.network.partial = 0.5
    whole, sent, read = bytes(range(256)) * 20, 0, b""
    while len(read) < len(whole):
        sent += mine.send(whole[sent : sent + 500]) if sent < len(whole) else 0
        scene.pass_s(0.05)
        while theirs.readable():
            read += theirs.recv(300)
    assert read == whole


def test_a_reader_that_does_not_read_makes_the_writer_wait() -> None:
    scene = Scene()
    mine, theirs = connected(scene)
    scene.network.partial = 0.0
    assert mine.send(bytes(100_000)) == 64 << 10
    assert not mine.writable()
    with pytest.raises(BlockingIOError):
        mine.send(b"more")
    scene.pass_s(1)
    theirs.recv(10)
    assert mine.send(b"more, and more") == 10


def test_nobody_listens() -> None:
    scene = Scene()
    with pytest.raises(ConnectionRefusedError):
        scene.network.connect(scene.process, ADDRESS)
    ListeningSocket(scene.other, scene.network, ADDRESS)
    with pytest.raises(OSError, match="already in use"):
        ListeningSocket(scene.process, scene.network, ADDRESS)
    scene.other.kill()
    with pytest.raises(ConnectionRefusedError):
        scene.network.connect(scene.process, ADDRESS)


def test_a_reset_is_heard_at_both_ends_and_what_was_on_its_way_is_lost() -> None:
    scene = Scene()
    mine, theirs = connected(scene)
    scene.network.delay = (50 * MS, 51 * MS)
    mine.send(b"lost")
    scene.network.delay = (1 * MS, 2 * MS)
    scene.network.reset(mine)
    scene.pass_s(1)
    for end in (mine, theirs):
        with pytest.raises(ConnectionResetError):
            end.recv(10)
    assert scene.network.pairs == {}


def test_what_was_sent_before_a_close_arrives_before_the_end() -> None:
    scene = Scene()
    mine, theirs = connected(scene)
    scene.network.partial = 0.0
    mine.send(b"last words")
    mine.close()
    scene.pass_s(1)
    assert rest(theirs) == b"last words"
    with pytest.raises(BrokenPipeError):
        theirs.send(b"?")


def test_a_close_with_unread_bytes_is_a_reset() -> None:
    scene = Scene()
    mine, theirs = connected(scene)
    theirs.send(b"unread")
    scene.pass_s(1)
    mine.close()
    scene.pass_s(1)
    assert rest(theirs) is ConnectionResetError


def test_a_killed_process_leaves_its_last_bytes_or_a_reset() -> None:
    ends = set()
    for seed in range(20):
        scene = Scene(seed)
        mine, theirs = connected(scene)
        scene.network.partial = 0.0
        mine.send(b"last")
        scene.process.kill()
        scene.pass_s(1)
        ends.add(rest(theirs))
    assert ends == {b"last", ConnectionResetError}


def test_a_machine_without_power_says_nothing() -> None:
    scene = Scene()
    mine, theirs = connected(scene)
    mine.silent = True
    scene.process.kill()
    scene.pass_s(30)
    with pytest.raises(BlockingIOError):
        theirs.recv(10)
    assert theirs.send(b"is there anybody") == 16


def test_the_same_seed_delays_the_same_and_another_one_does_not() -> None:
    def moments(seed: int) -> list[int]:
        scene = Scene(seed)
        mine, theirs = connected(scene)
        found = []
        for _ in range(5):
            mine.send(b"x")
            while not theirs.readable():
                scene.world.run(scene.world.now + 1000)
            theirs.recv(1)
            found.append(scene.world.now)
        return found

    assert moments(1) == moments(1) != moments(2)


def test_streams_of_asyncio_run_on_these_sockets() -> None:
    scene, said = Scene(), []
    server = ListeningSocket(scene.other, scene.network, ADDRESS)

    async def ask() -> None:
        reader, writer = await open_connection(*ADDRESS)
        writer.write(b"question")
        await writer.drain()
        said.append(await reader.readexactly(6))
        writer.close()

    async def answer() -> None:
        while not server.readable():
            await asyncio.sleep(0.01)
        sock, got = server.accept()[0], b""
        while len(got) < len(b"question"):
            got += sock.recv(100) if sock.readable() else b""
            await asyncio.sleep(0.01)
        said.append(got)
        sock.send(b"answer")

    scene.network.partial = 0.0
    scene.process.main(ask())
    scene.other.main(answer())
    scene.pass_s()
    assert said == [b"question", b"answer"]
