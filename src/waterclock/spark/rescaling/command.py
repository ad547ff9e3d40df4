"""`waterclock state`: what a pipeline's checkpoint holds, and how it is carried over into another number of buckets."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from waterclock.arguments import count, describe, master
from waterclock.wording import counted

if TYPE_CHECKING:
    from waterclock.spark.rescaling.stored import StateSeen
    from waterclock.streaming.places.place import Place

_SHOWN = 20  # buckets, the largest ones
_EXAMPLES = """waterclock state show orders-checkpoint
example: waterclock state rescale orders.toml --buckets 64"""


def add_to(parser: argparse.ArgumentParser) -> None:
    """The commands beneath it."""
    describe(parser, show, _EXAMPLES)
    parser.description = "`waterclock state`: the state that a pipeline keeps in its checkpoint."
    commands = parser.add_subparsers(required=True, metavar="show|rescale", help="what to do; --help of each says more")
    parser = commands.add_parser("show", help="buckets, keys and bytes of a checkpoint's state")
    describe(parser, show, "waterclock state show orders-checkpoint")
    parser.add_argument("place", metavar="CHECKPOINT", help="the checkpoint's folder or URI, or the pipeline's file")
    parser.add_argument("--json", action="store_true", help="print it as JSON, with every bucket")
    parser = commands.add_parser("rescale", help="carry the state over into another number of buckets")
    describe(parser, rescale, "waterclock state rescale orders.toml --buckets 64")
    parser.add_argument("pipeline", metavar="PIPELINE.toml", help="the pipeline's file; the pipeline must not run")
    parser.add_argument(
        "--buckets", type=_buckets, required=True, metavar="M", help="how many there are to be: 2 to 4096"
    )
    where = "the new checkpoint's folder or URI (default: the old one's name with -M behind)"
    parser.add_argument("--to", metavar="NEW", help=where)
    parser.add_argument("--master", type=master, metavar="URL", help="do it on a cluster: spark://HOST:7077 or yarn")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")


def show(arguments: argparse.Namespace) -> int:
    """`waterclock state show`: in how many buckets a checkpoint keeps its state, and how many keys each holds, in how many
    bytes. Nothing is changed, and the pipeline may run meanwhile."""
    from pathlib import Path

    from waterclock.spark.checkpoint.folder import Checkpoint
    from waterclock.spark.rescaling.stored import look
    from waterclock.spark.session.session import conf_for, start
    from waterclock.streaming.places.place import is_remote, place_of
    from waterclock.streaming.toml.config import load

    named = place_of(arguments.place, Path.cwd())
    config = None if is_remote(named) or not named.is_file() else load(arguments.place)
    checkpoint = Checkpoint(named if config is None else config.checkpoint)
    if not is_remote(checkpoint.path):  # else it is reached through Spark
        checkpoint.refuse_without_state()
    cores, conf = (None, {}) if config is None else (config.cores, config.spark_conf)
    session = start("state", cores, conf_for(checkpoint.path, conf))
    seen = look(session.spark, checkpoint)
    record = {**asdict(seen), "keys": seen.keys, "bytes": seen.bytes}
    print(json.dumps(record, indent=1) if arguments.json else _told(checkpoint.path, seen))
    return 0


def rescale(arguments: argparse.Namespace) -> int:
    """`waterclock state rescale`: carry a pipeline's state over into a new checkpoint with M buckets, in as many partitions
    as the pipeline has cores. The sink is handed over in one of its transactions. Killed before it, the old checkpoint
    goes on, and the same command begins anew; killed after it, the new one goes on. The old one is kept, and refused."""
    from dataclasses import replace
    from functools import partial
    from pathlib import Path

    from waterclock.spark.pipeline import configured
    from waterclock.spark.rescaling.carry import rescale
    from waterclock.spark.session.session import conf_for, start
    from waterclock.streaming.places.place import is_remote, place_of
    from waterclock.streaming.toml.config import load, log_of

    config = replace(load(arguments.pipeline), buckets=None)  # it may name the new number already
    to = place_of(arguments.to, Path.cwd()) if arguments.to else config.checkpoint
    conf = {**config.spark_conf, **({"spark.master": arguments.master} if arguments.master else {})}
    conf = conf_for(to if is_remote(to) else config.checkpoint, conf)
    begin = partial(start, config.name, config.cores, conf, log_of(config, arguments.pipeline), arguments.buckets)
    session = begin() if config.is_remote() else None  # its places are reached through Spark
    pipeline = configured(config)
    try:
        pipeline.check()
        session = session or begin()
        made = rescale(pipeline, arguments.buckets, arguments.to, session.spark, _report)
    finally:
        pipeline.close()
    print(json.dumps({**asdict(made), "checkpoint": str(made.checkpoint)}, indent=1) if arguments.json else _done(made))
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


def _done(made: Any) -> str:
    return (
        f"In {counted(made.buckets, 'bucket')} and {counted(made.partitions, 'partition')} now: "
        f"{counted(made.keys, 'key')}, {counted(made.deadlines, 'deadline')}, {counted(made.bytes, 'byte')}.\n"
        "Go on with it by the line\n\n"
        f"    checkpoint = {json.dumps(str(made.checkpoint))}\n\n"
        f"under [pipeline]; a line 'buckets' under [spark] must say {made.buckets}, or go. The old checkpoint was kept. It "
        "is refused from now on, and may be removed."
    )


def _told(path: Place, seen: StateSeen) -> str:
    largest = sorted(seen.stored, key=lambda bucket: -bucket.bytes)[:_SHOWN]
    lines = [
        f"{path}: {counted(seen.keys, 'key')} in {counted(seen.buckets, 'bucket')} in "
        f"{counted(seen.partitions, 'partition')}, {counted(seen.bytes, 'byte')}, "
        f"after batch {seen.batch_id}",
        f"{'bucket':>8}{'keys':>12}{'bytes':>14}",
        *(f"{bucket.place:>8}{bucket.keys:>12,}{bucket.bytes:>14,}" for bucket in largest),
    ]
    if len(seen.stored) > len(largest):
        lines.append(f"the {len(largest)} largest of {len(seen.stored)}; --json has all")
    return "\n".join(lines)
