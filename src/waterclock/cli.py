"""The command `waterclock`: one command a function, heavy imports inside.

Exit codes: 0 done, 1 failed, 2 wrong usage. What went wrong and what to do stands in one sentence on stderr, never a
traceback for a user's mistake. `--json` prints what a program would read on stdout.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from waterclock import __version__
from waterclock.cdc import arguments as change_capture
from waterclock.errors import EnvironmentMissing, UsageError, WaterclockError
from waterclock.trace import command as trace

LESSONS = ("order", "duplicates", "acks", "keys")
Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the value is the process's exit code."""
    parsed = _parser().parse_args(arguments)
    command: Command = parsed.command
    try:
        return command(parsed)
    except UsageError as error:
        return _fail(2, str(error))
    except WaterclockError as error:
        return _fail(1, str(error))
    except KeyboardInterrupt:
        return _fail(1, "stopped; what was committed stays, and the same command goes on from there")
    except ModuleNotFoundError as error:
        return _fail(1, _how_to_get(error, command))
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away: nothing more to say, and nowhere to say it
        return 1
    except OSError as error:  # a full disk, a folder of another user
        return _fail(
            1, f"the system refuses: {error}. What was committed stays; mend the cause, and run the same command again"
        )


def run(arguments: argparse.Namespace) -> int:
    """`waterclock run`: a pipeline from its TOML file."""
    from waterclock.spark.fresh import start_over
    from waterclock.spark.pipeline import Pipeline
    from waterclock.spark.session.session import start
    from waterclock.spark.toml.config import load
    from waterclock.spark.watching.prometheus import prometheus

    config = load(arguments.pipeline)
    if arguments.fresh:
        start_over(config)
    pipeline = Pipeline(config)
    try:
        pipeline.check()
        with _metrics(arguments, lambda: prometheus(pipeline.statistics())), _progress(arguments, config.name) as bar:
            conf = {**config.spark_conf, **({"spark.master": arguments.master} if arguments.master else {})}
            session = start(config.name, config.cores, conf, config.checkpoint / "spark.log")
            summary = pipeline.run(session.spark, arguments.live, bar.tell)
    finally:
        pipeline.close()
    _print_summary(arguments, summary)
    return 0


def demo(arguments: argparse.Namespace) -> int:
    """`waterclock demo fines`: the main job. `kills`: its driver killed. `cdc`: a database's changes into another one.
    `order`, `duplicates`, `acks`, `keys`: lessons."""
    from waterclock.examples.options import settle

    settle(arguments)
    if arguments.name in LESSONS:
        lesson = import_module(f"waterclock.examples.lessons.{arguments.name}").lesson()
        print(lesson.as_json() if arguments.json else lesson.as_text())
        return 0
    folder = Path(f"out/{arguments.name}" if arguments.folder is None else arguments.folder)
    if arguments.name == "cdc":
        return _demo_cdc(arguments, folder)
    if arguments.name == "kills":
        from waterclock.examples.fines import kills

        count = 5 if arguments.kills is None else arguments.kills
        return int(kills.demo(folder, arguments.on, count, arguments.seed, arguments.json))
    from waterclock.examples.fines import main as fines

    return int(fines.demo(folder, arguments.seed, arguments.json))


def _demo_cdc(arguments: argparse.Namespace, folder: Path) -> int:
    for name in ("kio", "confluent_kafka", "pymysqlreplication", "pgpq", "pyspark"):  # one of each extra
        if find_spec(name) is None:
            raise EnvironmentMissing(f"demo cdc needs it all, and {name} is missing: pip install 'waterclock[all]'")
    from waterclock.examples.cdc import main as cdc_demo

    kills = 0 if arguments.kills is None else arguments.kills
    wanted = cdc_demo.Wanted(folder, arguments.seed, arguments.changes, kills, arguments.json)
    return int(cdc_demo.demo(wanted))


def bench(arguments: argparse.Namespace) -> int:
    """`waterclock bench`: contenders side by side in one run; the result is written down, and drawn."""
    from waterclock.bench import command

    return int(command.run(arguments))


def broker(arguments: argparse.Namespace) -> int:
    """`waterclock broker`: Kafka's protocol on one machine, until Ctrl-C."""
    from waterclock.broker import process
    from waterclock.broker.replication.promoting import checked

    if arguments.settings:
        print(process.listed())
        return 0
    settings = process.parsed(arguments.set)
    access, say, every_s = process.access(arguments), partial(print, flush=True), arguments.statistics_every
    follow = arguments.follow and checked(arguments.follow, "--follow")
    beside = partial(_broker_metrics, arguments)
    process.serve(arguments.data, arguments.host, arguments.port, settings, access, say, every_s, follow, beside)
    return 0


def promote(arguments: argparse.Namespace) -> int:
    """`waterclock broker promote`: a follower becomes the leader, and the old leader is shut out when it comes back."""
    from waterclock.broker.replication import promoting

    promoting.promote(arguments.at, arguments.unclean)
    print(f"the broker at {arguments.at} leads")
    return 0


def cdc(arguments: argparse.Namespace) -> int:
    """`waterclock cdc`: what a database commits, in order, exactly once into Kafka, until Ctrl-C."""
    from waterclock.cdc import command

    return command.run(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="waterclock", description="Kafka's way with time, for Python.")
    parser.add_argument("--version", action="version", version=f"waterclock {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(_command(commands, "run", run, "run a pipeline", "waterclock run orders.toml --live"))
    example = "waterclock broker --port 9092 --data out/broker --set num.partitions=4"
    _add_broker(_command(commands, "broker", broker, "serve Kafka's protocol on this machine", example))
    change_capture.add_to(_command(commands, "cdc", cdc, "copy a database's changes to Kafka", change_capture.EXAMPLE))
    _add_demo(_command(commands, "demo", demo, "show the main job, or a lesson", "waterclock demo fines --seed 7"))
    trace.add_to(_command(commands, "trace", trace.run, "step through a timing wheel", "waterclock trace seven-tasks"))
    _add_bench(_command(commands, "bench", bench, "measure beside others", "waterclock bench timers --sizes 1k,100k"))
    return parser


def _command(commands: Any, name: str, function: Command, what: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=what,
        description=function.__doc__,
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=function)
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pipeline", metavar="PIPELINE.toml", help="the pipeline's file")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="take what is there, close, end (the default)")
    how.add_argument("--live", action="store_true", help="go on taking what comes until Ctrl-C")
    parser.add_argument("--fresh", action="store_true", help="remove the checkpoint and the sink's tables first")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--master", metavar="URL", help="run on a cluster: spark://HOST:7077, k8s://..., yarn")
    _add_metrics(parser)


def _add_metrics(parser: argparse.ArgumentParser) -> None:
    what = "serve http://127.0.0.1:PORT/metrics for Prometheus; 0 for any free port"
    parser.add_argument("--metrics", type=_port, metavar="PORT", help=what)


def _add_broker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=9092, help="0 for any free one (default: %(default)s)")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: %(default)s)")
    parser.add_argument("--data", metavar="DIR", help="keep everything there (default: a temporary folder)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting, by Kafka's name; may be repeated"
    )
    parser.add_argument(
        "--users", metavar="FILE", help="name:password lines; with it clients must say who they are (SASL)"
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate as PEM: with it clients must use TLS")
    parser.add_argument("--tls-key", metavar="FILE", help="its key as PEM")
    parser.add_argument("--advertise", metavar="HOST[:PORT]", help="where clients are told to connect to")
    parser.add_argument("--insecure-remote", action="store_true", help="let other machines in without users and TLS")
    parser.add_argument("--settings", action="store_true", help="list the settings with their defaults, and end")
    parser.add_argument(
        "--statistics-every",
        type=_seconds,
        metavar="SECONDS",
        help="print statistics to stderr, a line of JSON each time",
    )
    _add_metrics(parser)
    parser.add_argument("--follow", metavar="HOST:PORT", help="copy the broker there, and take over where promoted")
    example = "waterclock broker promote --at 127.0.0.1:9093"
    more = parser.add_subparsers(metavar="promote", help="make a follower the leader; promote --help tells more")
    _add_promote(_command(more, "promote", promote, "make a follower the leader", example))


def _add_promote(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--at", metavar="HOST:PORT", required=True, help="where the follower listens")
    parser.add_argument(
        "--unclean", action="store_true", help="even where it has copied nothing yet: what it lacks is lost"
    )


def _add_demo(parser: argparse.ArgumentParser) -> None:
    what = "the main job, the main job with its driver killed, change data capture, or one of the lessons"
    parser.add_argument("name", choices=["fines", "kills", "cdc", *LESSONS], help=what)
    folders = "where fines, kills and cdc write everything (default: out/ and their name)"
    parser.add_argument("--folder", help=folders)
    seed = "of the disorder, of the writes, and of the kills (default: 1)"
    parser.add_argument("--seed", type=int, help=seed)
    changes = "cdc: how many rows are changed (default: 200000)"
    parser.add_argument("--changes", type=int, metavar="N", help=changes)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    on = "kills: waterclock's broker and SQLite, or Apache Kafka and PostgreSQL (default: own)"
    parser.add_argument("--on", choices=["own", "servers"], help=on)
    parser.add_argument("--kills", type=_count, metavar="N", help="how many kills (default: kills 5, cdc none)")


# benchmark: (what it does, what --sizes are, then the defaults of its options)
_BENCHMARKS: dict[str, tuple[str, str, dict[str, str]]] = {
    "timers": (
        "what adding, cancelling and expiring cost beside others; memory, lateness, an asyncio loop. "
        "Kafka's own timer is among them where java, javac and mvn are on the PATH",
        "timers pending",
        {"sizes": "1k,100k,1M,10M", "rounds": "5", "seconds": "10"},
    ),
    "purgatory": (
        "what a delayed operation costs at rising rates, and which rate is held. "
        "Kafka's own purgatory beside it where java, javac and mvn are on the PATH",
        "operations pending, for the verbs",
        {"sizes": "1k,100k", "rounds": "5", "rates": "10k,25k,50k,100k,150k,200k", "seconds": "10"},
    ),
    "wheel": (
        "the wheels beside the standard library, nothing to be installed",
        "timers pending",
        {"sizes": "1k,100k,1M", "rounds": "5"},
    ),
    "pipeline": ("the pipeline beside code by hand (needs Spark)", "rows a batch", {"sizes": "40k", "rounds": "1"}),
    "held": (
        "what a batch costs when more is held: keys, and open expectations; the size of the checkpoint (needs Spark)",
        "keys held",
        {"sizes": "20k,200k", "open": "1M", "rounds": "1"},
    ),
    "latency": (
        "from producing a message to its committed row, beside Spark alone (needs Spark; PostgreSQL too where it is there)",
        "",
        {"rounds": "1", "seconds": "60"},
    ),
    "broker": (
        "throughput, latency, transactions, memory and starts of the broker, alone and with many connections. "
        "Apache Kafka is beside it where java and mvn are on the PATH; 10 GB of disk",
        "connections and partitions, for the growth",
        {"sizes": "1,100,1k", "rounds": "3", "seconds": "5"},
    ),
    "cdc": (
        "a binlog of MariaDB into the broker, beside mysql-replication that only decodes it (needs MariaDB)",
        "row changes in the binlog",
        {"sizes": "300k", "rounds": "3"},
    ),
}


def _add_bench(parser: argparse.ArgumentParser) -> None:
    benchmarks = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    for name, (what, sizes, defaults) in _BENCHMARKS.items():
        option = next(iter(defaults))
        example = f"waterclock bench {name} --{option} {defaults[option]} --out out/bench"
        options = _command(benchmarks, name, bench, what, example)
        options.description = f"`waterclock bench {name}`: {what}."
        _add_bench_options(options, sizes, defaults)


def _add_bench_options(parser: argparse.ArgumentParser, sizes: str, defaults: dict[str, str]) -> None:
    known: dict[str, tuple[Callable[[str], Any], str, str]] = {
        "sizes": (_counts, "1k,1M", sizes),
        "rates": (_counts, "10k,50k", "requests a second, for the load"),
        "open": (_count, "N", "expectations that are open"),
        "rounds": (_count, "N", "contenders take turns so many times; medians are shown"),
        "seconds": (_seconds, "S", "how long each measurement in real time takes"),
    }
    for name, default in defaults.items():
        kind, shown, what = known[name]
        parser.add_argument(
            f"--{name}", type=kind, metavar=shown, default=default, help=f"{what} (default: %(default)s)"
        )
    parser.add_argument(
        "--out", metavar="FOLDER", default="bench/results", help="for the results (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the record as JSON")


def _counts(text: str) -> list[int]:
    """`1k,2.5M` as numbers, rising, each once."""
    return sorted({_count(part) for part in text.split(",")})


def _count(text: str) -> int:
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?([kM]?)", text)
    number = float(f"{match[1]}.{match[2] or 0}") * {"": 1, "k": 1_000, "M": 1_000_000}[match[3]] if match else 0
    if number < 1 or number != int(number):
        raise argparse.ArgumentTypeError(f"{text!r} is no count from 1 on: write it as 500, 100k or 10M")
    return int(number)


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0.1 <= (seconds := float(text)) <= 86_400:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is no time from 0.1 to 86400 seconds")


def _port(text: str) -> int:
    if text.isdecimal() and int(text) < 65_536:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port from 0 to 65535")


def _how_to_get(error: ModuleNotFoundError, command: Command) -> str:
    name = (error.name or "").partition(".")[0]
    if name in {"", "waterclock"}:
        raise error
    extra = {
        "matplotlib": "demo",
        "confluent_kafka": "kafka",
        "pymysql": "cdc",
        "pymysqlreplication": "cdc",
        "kio": "broker",
        "crc32c": "broker",
        "cramjam": "broker",
        "psycopg": "postgres",
        "pgpq": "postgres",
        "deltalake": "delta",
    }.get(name, "spark")
    extra = "cdc" if command is cdc else extra  # which has packages in common with the others
    return f"{name} is missing: pip install 'waterclock[{extra}]'"


def _fail(code: int, message: str) -> int:
    print(f"waterclock: {message}", file=sys.stderr)
    return code


def _metrics(arguments: argparse.Namespace, page: Callable[[], str]) -> AbstractContextManager[object]:
    """Serves `page` where --metrics was given; says where on stderr."""
    if arguments.metrics is None:
        return nullcontext()
    from waterclock.web import MetricsServer

    server = MetricsServer(page, arguments.metrics)
    print(f"metrics at {server.url}", file=sys.stderr, flush=True)
    return server


def _broker_metrics(arguments: argparse.Namespace, broker: Any) -> AbstractContextManager[object]:
    from waterclock.broker.prometheus import prometheus

    return _metrics(arguments, lambda: prometheus(broker.statistics()))


def _progress(arguments: argparse.Namespace, name: str) -> Any:
    from waterclock.spark.progress import Bar

    return Bar(name, quiet=arguments.json)


def _print_summary(arguments: argparse.Namespace, summary: Any) -> None:
    from waterclock.spark.progress import summary_record, summary_table

    if arguments.json:
        print(json.dumps(summary_record(summary), indent=1))
    else:
        summary_table(summary)


if __name__ == "__main__":
    sys.exit(main())
