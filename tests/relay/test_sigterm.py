"""A program with handlers in a container that is stopped: SIGTERM ends it behind the message in hand."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.relay.handler_steps import Failing, deliver, making
from tests.relay.world import World
from waterclock.signals import heard, sigterm_heard

PROGRAM = """
import asyncio, sys
from waterclock.relay import AsyncDelays, Delays

how, servers, relay, topic = sys.argv[1:]
if how == "Delays":
    delays = Delays(servers, relay)

    @delays.handler(topic)
    def handle(delivery):
        print("began", delivery.text, flush=True)
        print("ended", sys.stdin.readline().strip(), flush=True)

    delays.run()
else:
    delays = AsyncDelays(servers, relay)

    @delays.handler(topic)
    async def handle(delivery):
        print("began", delivery.text, flush=True)
        line = await asyncio.to_thread(sys.stdin.readline)
        print("ended", line.strip(), flush=True)

    asyncio.run(delays.run())
print("done")
"""


@pytest.mark.parametrize("how", ["Delays", "AsyncDelays"])
def test_sigterm_ends_a_program_behind_the_message_in_hand(how: str, world: World) -> None:
    relay = world.started()
    world.send("a", in_ms=0)
    deliver(world, relay, 0)
    command = [sys.executable, "-c", PROGRAM, how, world.broker.bootstrap, world.topic, world.target]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "began a\n"
        program.send_signal(signal.SIGTERM)
        out, _ = program.communicate("well\n", timeout=60)
    assert (program.returncode, out) == (0, "ended well\ndone\n")
    with making(world, group=f"{world.target}.handler") as one:
        assert not one(Failing()).step(1.0)  # its offset is in Kafka


def test_a_handler_of_sigterm_that_a_program_has_set_is_its_own() -> None:
    with heard(ours := lambda number, frame: None):
        with sigterm_heard(lambda number, frame: None):
            assert signal.getsignal(signal.SIGTERM) is ours
        assert signal.getsignal(signal.SIGTERM) is ours
    with sigterm_heard(lambda number, frame: None):
        signal.signal(signal.SIGTERM, ours)
    assert signal.signal(signal.SIGTERM, signal.SIG_DFL) is ours
