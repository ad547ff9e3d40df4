"""`waterclock state`: what a pipeline's checkpoint holds, and how it is carried over: into another number of buckets, to
another engine."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from functools import wraps
from typing import TYPE_CHECKING, Any

from waterclock.arguments import Command, count, describe, master
from waterclock.errors import UsageError
from waterclock.wording import counted

if TYPE_CHECKING:
    from waterclock.spark.rescaling.parts import StateSeen
    from waterclock.streaming.places.place import Place
    from waterclock.streaming.toml.config import Config

ENGINES = ("spark", "local")
_SHOWN = 20  # buckets, the largest ones
_EXAMPLES = """waterclock state show orders-checkpoint
example: waterclock state rescale orders.toml --buckets 64
example: waterclock state move orders.toml --engine spark
example: waterclock state move orders.toml --engine local"""


def add_to(parser: argparse.ArgumentParser) -> None:
    """The commands beneath it."""
    describe(parser, show, _EXAMPLES)
    parser.description = "`waterclock state`: the state that a pipeline keeps in its checkpoint."
    commands = parser.add_subparsers(
        required=True, metavar="show|rescale|move", help="what to do; --help of each says more"
    )
    parser = commands.add_parser("show", help="buckets, keys and bytes of a checkpoint's state")
    describe(parser, show, "waterclock state show orders-checkpoint")
    parser.add_argument("place", metavar="CHECKPOINT", help="the checkpoint's folder or URI, or the pipeline's file")
    parser.add_argument("--json", action="store_true", help="print it as JSON, with every bucket")
    parser = commands.add_parser("rescale", help="carry the state over into another number of buckets")
    describe(parser, rescale, "waterclock state rescale orders.toml --buckets 64")
    many = "how many there are to be: 2 to 4096"
    parser.add_argument("--buckets", type=_buckets, required=True, metavar="M", help=many)
    parser.add_argument(
        "--live", action="store_true", help="while the pipeline runs, with a pause of seconds at the end"
    )
    _carries(parser, "-M")
    parser = commands.add_parser("move", help="carry the state over to the other engine")
    describe(parser, move, "waterclock state move orders.toml --engine spark")
    parser.add_argument("--engine", choices=ENGINES, required=True, help="what is to go on with it")
    parser.add_argument("--buckets", type=_buckets, metavar="M", help=f"{many} (default: as of a new pipeline)")
    _carries(parser, "-ENGINE")


def _carries(parser: argparse.ArgumentParser, behind: str) -> None:
    parser.add_argument(
        "pipeline", metavar="PIPELINE.toml", help="the pipeline's file; it must not run, but for --live"
    )
    where = f"the new checkpoint's folder or URI (default: the old one's name with {behind} behind)"
    parser.add_argument("--to", metavar="NEW", help=where)
    parser.add_argument("--master", type=master, metavar="URL", help="do it on a cluster: spark://HOST:7077 or yarn")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")


def _explaining(command: Command) -> Command:
    """The same, with a sentence for what Spark throws."""

    @wraps(command)
    def explaining(arguments: argparse.Namespace) -> int:
        try:
            return command(arguments)
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
                raise
            from waterclock.spark.session.starts import explained

            raise explained(error, lambda story: None, "Spark's log") from error

    return explaining


@_explaining
def show(arguments: argparse.Namespace) -> int:
    """`waterclock state show`: in how many buckets a checkpoint keeps its state, and how many keys each holds, in how many
    bytes. Nothing is changed, and the pipeline may run meanwhile."""
    from pathlib import Path

    from waterclock.local.checkpoint import is_local
    from waterclock.streaming.places.place import is_remote, place_of
    from waterclock.streaming.toml.config import load

    named = place_of(arguments.place, Path.cwd())
    config = None if is_remote(named) or not named.is_file() else load(arguments.place)
    checkpoint = named if config is None else config.checkpoint
    seen, last = _seen_here(checkpoint) if is_local(checkpoint) else _seen_by_spark(checkpoint, config)
    record = {**asdict(seen), "keys": seen.keys, "bytes": seen.bytes}
    print(json.dumps(record, indent=1) if arguments.json else _told(checkpoint, seen, last))
    return 0


def _seen_here(checkpoint: Any) -> tuple[StateSeen, int]:
    """The state of a checkpoint that needs no Spark, and the last batch that one of its buckets has."""
    from waterclock.local.checkpoint import look
    from waterclock.spark.rescaling.parts import state_seen

    count, found = look(checkpoint)
    batches = [batch for _, batch, *_ in found]
    stored = ((place, engine, size) for place, _, engine, size in found)
    return state_seen(min(batches), count, stored), max(batches)


def _seen_by_spark(place: Place, config: Config | None) -> tuple[StateSeen, int]:
    from waterclock.spark.checkpoint.folder import Checkpoint
    from waterclock.spark.rescaling.stored import look
    from waterclock.spark.session.session import conf_for, start
    from waterclock.streaming.places.place import is_remote

    checkpoint = Checkpoint(place)
    if not is_remote(place):  # else it is reached through Spark
        checkpoint.refuse_without_state()
    cores, conf = (None, {}) if config is None else (config.cores, config.spark_conf)
    seen = look(start("state", cores, conf_for(place, conf)).spark, checkpoint)
    return seen, seen.batch_id


@_explaining
def rescale(arguments: argparse.Namespace) -> int:
    """`waterclock state rescale`: carry a pipeline's state over into a new checkpoint with M buckets, in as many partitions
    as the pipeline has cores. The sink is handed over in one of its transactions. Killed before it, the old checkpoint
    goes on, and the same command begins anew; killed after it, the new one goes on. The old one is kept, and refused."""
    from dataclasses import replace
    from functools import partial

    from waterclock.spark.pipeline import configured
    from waterclock.spark.rescaling.carry import rescale
    from waterclock.spark.session.session import conf_for, start
    from waterclock.streaming.places.place import is_remote
    from waterclock.streaming.toml.config import load, log_of

    config = replace(load(arguments.pipeline), buckets=None)  # it may name the new number already
    new = _new(arguments, config, arguments.buckets)
    conf = conf_for(new if is_remote(new) else config.checkpoint, config.spark_conf, arguments.master)
    if arguments.live:
        return _rescale_live(arguments, config, new, conf)
    begin = partial(start, config.name, config.cores, conf, log_of(config, arguments.pipeline), arguments.buckets)
    session = begin() if config.is_remote() else None  # its places are reached through Spark
    pipeline = configured(config)
    try:
        pipeline.kept()
        session = session or begin()
        made = rescale(pipeline, arguments.buckets, new, session.spark, _report)
    finally:
        pipeline.close()
    return _say(arguments, made)


def _rescale_live(arguments: argparse.Namespace, config: Config, to: Place, conf: dict[str, str]) -> int:
    from pathlib import Path

    from waterclock.spark.checkpoint.folder import Checkpoint
    from waterclock.spark.rescaling.live import LiveRescale
    from waterclock.spark.session.session import start

    old, new = Checkpoint(config.checkpoint), Checkpoint(to)
    log = Path(arguments.pipeline).resolve().with_name(f"{config.name}-rescale.log")
    if config.rules is None:
        raise UsageError("the pipeline has no rules of its own, so there is no state of rules to carry over here")
    old.local, new.local  # noqa: B018 - refused behind a URI
    spark = start(config.name, config.cores, conf, log, arguments.buckets).spark
    return _say(arguments, LiveRescale(spark, old, new, config.rules, arguments.buckets, _report).move())


@_explaining
def move(arguments: argparse.Namespace) -> int:
    """`waterclock state move`: carry the state of a pipeline into a new checkpoint of the other engine, "spark" or "local".
    The sink is handed over in one of its transactions. Killed before it, the old checkpoint goes on, and the same
    command begins anew; killed after it, the new one goes on. The old one is kept, and refused."""
    from dataclasses import replace
    from pathlib import Path

    from waterclock.pipelines.moving import to_spark
    from waterclock.pipelines.returning import to_local
    from waterclock.spark.session.session import conf_for, start
    from waterclock.streaming.toml.config import load

    config, to_here = load(arguments.pipeline), arguments.engine == "local"
    new = _new(arguments, config, arguments.engine)
    conf = conf_for(config.checkpoint if to_here else new, config.spark_conf, arguments.master)
    log = Path(arguments.pipeline).resolve().with_name(f"{config.name}-spark.log")  # no part of the old checkpoint

    def begin(count: int | None) -> Any:
        return start(config.name, config.cores, conf, log, count).spark

    if not to_here:
        return _say(arguments, to_spark(config, new, begin, arguments.buckets, _report))
    local = replace(config.local, buckets=arguments.buckets or config.local.buckets)
    return _say(arguments, to_local(replace(config, local=local), Path(str(new)), begin, _report), "local")


def _new(arguments: argparse.Namespace, config: Config, behind: object) -> Place:
    """Where the new checkpoint is to lie; UsageError if source or sink lie there."""
    from pathlib import Path

    from waterclock.streaming.places.place import place_of
    from waterclock.streaming.toml.table import check_places

    beside = config.checkpoint.parent / f"{config.checkpoint.name}-{behind}"
    new = place_of(arguments.to, Path.cwd()) if arguments.to else beside
    for outlet in config.outlets:
        check_places(None, getattr(config.source, "path", None), new, getattr(outlet.sink, "path", None))
    return new


def _say(arguments: argparse.Namespace, made: Any, engine: str = "spark") -> int:
    record = {**asdict(made), "checkpoint": str(made.checkpoint)}
    print(json.dumps(record, indent=1) if arguments.json else _done(made, engine))
    return 0


def _buckets(text: str) -> int:
    from waterclock.streaming.buckets import checked

    number = count(text)
    try:
        checked("the number of buckets", number)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return number


def _report(line: str) -> None:
    print(f"waterclock: {line}", file=sys.stderr)


def _done(made: Any, engine: str) -> str:
    otherwise = "or go" if engine == "spark" else "and is 4 if it is left out"
    return (
        f"In {counted(made.buckets, 'bucket')} and {counted(made.partitions, 'partition')} now: {made.told()}.\n"
        "Go on with it by the lines\n\n"
        f'    engine = "{engine}"\n    checkpoint = {json.dumps(str(made.checkpoint))}\n\n'
        f"under [pipeline]; 'buckets' under [{engine}] must say {made.buckets}, {otherwise}. The old checkpoint was kept. "
        "It is refused from now on, and may be removed."
    )


def _told(path: Place, seen: StateSeen, last: int) -> str:
    batches = f"batch {last}" if last == seen.batch_id else f"batches {seen.batch_id} to {last}"
    largest = sorted(seen.stored, key=lambda bucket: -bucket.bytes)[:_SHOWN]
    lines = [
        f"{path}: {counted(seen.keys, 'key')} in {counted(seen.buckets, 'bucket')} in "
        f"{counted(seen.partitions, 'partition')}, {counted(seen.bytes, 'byte')}, "
        f"after {batches}",
        f"{'bucket':>8}{'keys':>12}{'bytes':>14}",
        *(f"{bucket.place:>8}{bucket.keys:>12,}{bucket.bytes:>14,}" for bucket in largest),
    ]
    if len(seen.stored) > len(largest):
        lines.append(f"the {len(largest)} largest of {len(seen.stored)}; --json has all")
    return "\n".join(lines)
