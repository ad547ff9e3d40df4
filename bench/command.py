"""Behind `waterclock bench`: measure, tell on the way, write down, show.

Rule 1: what is measured stands in the benchmark's own room; here is only which, and where the result goes.
Rule 2: what could fail besides measuring (folder, table, picture) is made ready before, so that no figures are lost.
Rule 3: progress goes to stderr, the result to stdout: a table, or with `--json` the record.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from waterclock.bench import record, tables
from waterclock.errors import UsageError, WaterclockError

TURNED = 100_000  # requests a second where the clock is turned by hand
Tell = Callable[[str], None]
Draw = Callable[[Mapping[str, Any], Path], bool]
Benchmark = tuple[Callable[[argparse.Namespace, Tell], Any], Callable[[Any], str]]  # its figures; its table


def run(arguments: argparse.Namespace) -> int:
    """One benchmark from the command's arguments; 0, or an error of waterclock's."""
    measure, table = BENCHMARKS[arguments.benchmark]
    folder, progress, draw = _folder(arguments.out), Progress(), _artist()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: no server is left running
    try:
        figures = measure(arguments, progress.tell)
    except KeyboardInterrupt:
        raise WaterclockError("stopped; nothing was written") from None
    finally:
        signal.signal(signal.SIGTERM, before)
        progress.end()
    result = record.of(arguments.benchmark, _command(arguments), figures)
    text = table(figures)
    written = result.write(folder, text)
    picture = folder / f"{arguments.benchmark}.png"
    if draw is not None and draw(json.loads(result.json()), picture):
        written.append(picture)
    print(result.json() if arguments.json else f"{result.head()}\n{text}")
    print("written: " + ", ".join(map(str, written)), file=sys.stderr)
    return 0


class Progress:
    """What is going on, on stderr: one line that changes on a terminal, a line each elsewhere."""

    def __init__(self) -> None:
        self._changing = sys.stderr.isatty()

    def tell(self, what: str) -> None:
        """Show what begins now."""
        print(
            f"\r\033[K{what}" if self._changing else what,
            end="" if self._changing else "\n",
            file=sys.stderr,
            flush=True,
        )

    def end(self) -> None:
        """Leave the line clean."""
        if self._changing:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _command(arguments: argparse.Namespace) -> str:
    """The command line that does the same again."""
    words = ["waterclock", "bench", arguments.benchmark]
    for name in ("sizes", "rates", "open", "rounds", "seconds"):
        value = getattr(arguments, name, None)
        if value is not None:
            one = f"{value:g}" if isinstance(value, float) else str(value)
            words += [f"--{name}", ",".join(map(str, value)) if isinstance(value, list) else one]
    return " ".join(words)


def _folder(name: str) -> Path:
    """Made before anything is measured; `UsageError` where that cannot be."""
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {name}: {error.strerror}; name a folder that can be written to") from None
    return folder


def _artist() -> Draw | None:
    """Who draws; None, and a line about it, where matplotlib is missing. Asked before minutes are spent."""
    try:
        from waterclock.bench import plots
    except ModuleNotFoundError as error:
        print(f"no picture, as {error.name} is missing: pip install 'waterclock[bench]'", file=sys.stderr)
        return None
    return plots.draw


# What is measured; imports inside, as each needs other packages


def _timers(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench.kafka.harness import built
    from waterclock.bench.kafka.timers import KafkaTimer
    from waterclock.bench.timers import lateness, loop, memory, verbs

    sizes, rounds, seconds = arguments.sizes, arguments.rounds, arguments.seconds
    with built(tell) as kafka:
        by_verb = verbs.measure(verbs.CONTENDERS, sizes, rounds, tell, [KafkaTimer(kafka, tell)])
    return {
        "pending": sizes,
        "rounds": rounds,
        **by_verb,
        "memory": memory.measure(verbs.CONTENDERS, sizes, tell),
        "lateness": lateness.measure(seconds, tell),
        "loop": loop.measure(min(loop.TIMERS, max(sizes)), seconds, rounds, tell),
    }


def _wheel(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench.timers import verbs

    sizes, rounds = arguments.sizes, arguments.rounds
    return {"pending": sizes, "rounds": rounds, **verbs.measure(verbs.STANDARD, sizes, rounds, tell)}


def _purgatory(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench.kafka.harness import built
    from waterclock.bench.kafka.purgatory import KafkaPurgatory
    from waterclock.bench.purgatory import load, turned, verbs

    with built(tell) as found:
        kafka = KafkaPurgatory(found)
        return {
            "ns": verbs.measure(arguments.sizes, arguments.rounds, tell, kafka),
            "turned": turned.measure(min(TURNED, max(arguments.rates)), arguments.seconds, tell),
            "rates": load.measure(arguments.rates, arguments.seconds, tell, kafka),
            "notes": kafka.notes,
        }


def _pipeline(arguments: argparse.Namespace, tell: Tell) -> list[dict[str, Any]]:
    from waterclock.bench import pipeline

    found = []
    for rows_a_batch in arguments.sizes:
        with tempfile.TemporaryDirectory() as folder:
            runs = pipeline.measure(rows_a_batch, arguments.rounds, Path(folder), tell)
        found += pipeline.table(runs, rows_a_batch)
    return found


def _held(arguments: argparse.Namespace, tell: Tell) -> list[dict[str, Any]]:
    from waterclock.bench import held

    return held.measure(arguments.sizes, arguments.open, arguments.rounds, tell)


def _latency(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench.latency import campaign

    return campaign.measure(arguments.rounds, arguments.seconds, tell)


def _cdc(arguments: argparse.Namespace, tell: Tell) -> list[dict[str, Any]]:
    from waterclock.bench.cdc import campaign

    return campaign.measure(arguments.sizes, arguments.rounds, tell)


def _broker(arguments: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    from waterclock.bench.broker import campaign

    return campaign.measure(arguments.sizes, arguments.rounds, arguments.seconds, tell)


def _broker_table(figures: dict[str, Any]) -> str:
    from waterclock.bench.broker.table import table

    return table(figures)


BENCHMARKS: dict[str, Benchmark] = {
    "timers": (_timers, tables.timers),
    "purgatory": (_purgatory, tables.purgatory),
    "wheel": (_wheel, tables.verbs),
    "pipeline": (_pipeline, tables.pipeline),
    "held": (_held, tables.held),
    "latency": (_latency, tables.live_latency),
    "broker": (_broker, _broker_table),
    "cdc": (_cdc, tables.cdc),
}
