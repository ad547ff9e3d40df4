"""Java's console consumer changes its protocol in a running group, there and back."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.batches import batch
from tests.conformance.dialogue import Dialogue
from tests.conformance.waiting import until
from waterclock.bench.servers import apache

pytestmark = pytest.mark.servers
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
WITHIN_S = 60.0


class Console:
    """One console consumer of the group, in a process of its own; what it reads goes to a file."""

    def __init__(self, bootstrap: str, topic: str, group: str, output: Path, protocol: str) -> None:
        asked = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning"]
        asked += ["--command-property", f"group.protocol={protocol}"]
        if protocol == "classic":
            asked += [
                "--command-property",
                "session.timeout.ms=6000",
                "--command-property",
                "heartbeat.interval.ms=200",
            ]
        self._output = output
        with output.open("wb") as out, output.with_suffix(".errors").open("wb") as errors:
            self.process = subprocess.Popen(apache.tool(CONSUMER, *asked), stdout=out, stderr=errors)

    @property
    def lines(self) -> set[str]:
        return set(self._output.read_text().split())

    def stop(self) -> None:
        """As an operator does: it leaves the group."""
        self.process.terminate()
        self.process.wait(WITHIN_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(WITHIN_S)


@pytest.fixture
def four(new_topic: Callable[..., str]) -> str:
    return new_topic(4)


@pytest.fixture
def console(bootstrap: str, four: str, name: str, tmp_path: Path) -> Iterator[Callable[[str], Console]]:
    apache.fetch()
    with ExitStack() as stack:

        def begin(protocol: str) -> Console:
            number = len(list(tmp_path.glob("*.out")))
            one = Console(bootstrap, four, name, tmp_path / f"{number}.out", protocol)
            stack.callback(one.close)
            return one

        yield begin


def test_a_console_consumer_is_replaced_by_one_of_the_other_protocol_and_back(
    console: Callable[[str], Console], dialogue: Dialogue, four: str, name: str
) -> None:
    written: set[str] = set()

    def shared(kind: str, *consoles: Console) -> None:
        """All of them read, everything is read, and the group is of that kind."""

        def settled() -> Any:
            before = [one.lines for one in consoles]
            for partition in range(4):
                value = str(len(written))
                dialogue.produce(four, batch(value.encode()), partition=partition)
                written.add(value)
            until(lambda: set().union(*(one.lines for one in everybody)) == written, within_s=WITHIN_S)
            rows = [row for row in dialogue.wire.ask("list_groups", 5).groups if row.group_id == name]
            all_read = all(one.lines > old for one, old in zip(consoles, before, strict=True))
            return all_read and [(row.group_type, row.group_state) for row in rows] == [(kind, "Stable")]

        until(settled, within_s=WITHIN_S)

    first = console("classic")
    everybody = [first]
    shared("classic", first)
    second = console("consumer")
    everybody.append(second)
    shared("consumer", first, second)
    first.stop()
    shared("consumer", second)
    third = console("classic")
    everybody.append(third)
    shared("consumer", second, third)
    second.stop()
    shared("classic", third)
