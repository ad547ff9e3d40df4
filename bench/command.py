"""`waterclock bench`: measure, tell on the way, write down, show.

Rule 1: what could fail besides measuring (folder, table, picture) is made ready before, so that no figures are lost.
Rule 2: progress goes to stderr, the result to stdout: a table, or with `--json` the record.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from waterclock.arguments import count, counts, describe, seconds
from waterclock.bench.benchmarks import BENCHMARKS, Benchmark
from waterclock.errors import UsageError, WaterclockError, meant, pip_install

CONTENDERS = ("spark", "flink", "flink-rocksdb", "streams", "floor")  # of the pipeline
Draw = Callable[[Mapping[str, Any], Path], bool]


def contenders(text: str) -> list[str]:
    """Names with commas between, each once.

    >>> contenders("flink,spark,flink")
    ['flink', 'spark']
    """
    names = list(dict.fromkeys(text.split(",")))
    if unknown := [name for name in names if name not in CONTENDERS]:
        raise argparse.ArgumentTypeError(f"there is no contender {unknown[0]!r}; {meant(unknown[0], CONTENDERS)}")
    return names


def add_to(parser: argparse.ArgumentParser) -> None:
    """A command for each benchmark, with its options."""
    describe(parser, run, "waterclock bench timers --sizes 1k,100k")
    commands = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    for name, benchmark in BENCHMARKS.items():
        option = next(iter(benchmark.defaults))
        options = commands.add_parser(name, help=benchmark.what)
        example = f"waterclock bench {name} --{option} {benchmark.defaults[option]} --out out/bench"
        describe(options, run, example)
        options.description = f"`waterclock bench {name}`: {benchmark.what}."
        _add_options(options, benchmark)


def _add_options(parser: argparse.ArgumentParser, benchmark: Benchmark) -> None:
    known: dict[str, tuple[Callable[[str], Any], str, str]] = {
        "sizes": (counts, "1k,1M", benchmark.sizes),
        "rates": (counts, "10k,50k", "requests a second, for the load"),
        "open": (count, "N", "expectations that are open"),
        "contenders": (contenders, "NAME,NAME", f"whom to measure: {', '.join(CONTENDERS)}"),
        "events": (counts, "100k,700k", "events of a whole run, for all contenders but spark and floor"),
        "rounds": (count, "N", "contenders take turns so many times; medians are shown"),
        "seconds": (seconds, "S", "how long each measurement in real time takes"),
    }
    for name, default in benchmark.defaults.items():
        kind, shown, what = known[name]
        parser.add_argument(
            f"--{name}", type=kind, metavar=shown, default=default, help=f"{what} (default: %(default)s)"
        )
    if benchmark.quick:
        options = {name: known[name][0](value) for name, value in benchmark.quick.items()}
        shown = " ".join(f"--{name} {value}" for name, value in benchmark.quick.items())
        parser.add_argument("--quick", action=Quick, const=options, help=f"a small run: {shown}")
    for name, what in benchmark.parts.items():
        parser.add_argument(f"--{name}", action="store_true", help=f"measure only {what}")
    parser.add_argument(
        "--out", metavar="FOLDER", default="bench/results", help="for the results (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the record as JSON")


def run(arguments: argparse.Namespace) -> int:
    """`waterclock bench`: contenders side by side in one run; the result is written down, and drawn."""
    from waterclock.bench import record

    benchmark = BENCHMARKS[arguments.benchmark]
    folder, progress, draw = _folder(arguments.out), Progress(), _artist()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: no server is left running
    try:
        figures = benchmark.measure(arguments, progress.tell)
    except KeyboardInterrupt:
        raise WaterclockError("stopped; nothing was written") from None
    finally:
        signal.signal(signal.SIGTERM, before)
        progress.end()
    result = record.of(arguments.benchmark, _command(arguments), figures)
    text = benchmark.table(figures)
    written = result.write(folder, text)
    picture = folder / f"{arguments.benchmark}.png"
    if draw is not None and draw(json.loads(result.json()), picture):
        written.append(picture)
    print(result.json() if arguments.json else f"{result.head()}\n{text}")
    print("written: " + ", ".join(map(str, written)), file=sys.stderr)
    errors = [each for each in figures if "error" in each] if isinstance(figures, list) else []
    for each in errors:
        print(f"waterclock: {each['contender']}: {each['error']}", file=sys.stderr)
    return 1 if errors else 0


class Quick(argparse.Action):
    """Other values for several options at once; an option that stands behind it changes its own again."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, **settings)

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        for name, value in self.const.items():
            setattr(namespace, name, value)


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
    for name in ("contenders", "sizes", "events", "rates", "open", "rounds", "seconds"):
        value = getattr(arguments, name, None)
        if value is not None:
            one = f"{value:g}" if isinstance(value, float) else str(value)
            words += [f"--{name}", ",".join(map(str, value)) if isinstance(value, list) else one]
    words += [f"--{name}" for name in BENCHMARKS[arguments.benchmark].parts if getattr(arguments, name)]
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
        print(f"no picture, as {error.name} is missing: {pip_install('bench')}", file=sys.stderr)
        return None
    return plots.draw
