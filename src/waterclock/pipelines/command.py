"""`waterclock run`: a pipeline, its bar while it works, and its summary; or what is wrong with it."""

from __future__ import annotations

import argparse
import json
from contextlib import closing, suppress
from dataclasses import asdict
from typing import Any

from waterclock.arguments import describe, master
from waterclock.errors import UsageError
from waterclock.web import option


def add_to(parser: argparse.ArgumentParser) -> None:
    """The options."""
    describe(parser, run, "waterclock run orders.toml --live")
    parser.add_argument("pipeline", metavar="PIPELINE.toml", help="the pipeline's file")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="take what is there, close, end (the default)")
    how.add_argument("--live", action="store_true", help="go on taking what comes until Ctrl-C")
    how.add_argument("--check", action="store_true", help="say what is wrong with it, without running it, and end")
    parser.add_argument("--fresh", action="store_true", help="remove the checkpoint and the sink's tables first")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--engine", choices=("spark", "local"), help="what runs it, in place of the file's engine")
    parser.add_argument("--master", type=master, metavar="URL", help="run on a cluster: spark://HOST:7077 or yarn")
    option.add_to(parser)
    option.add_hidden(parser)


def run(arguments: argparse.Namespace) -> int:
    """`waterclock run`: a pipeline from its TOML file."""
    if arguments.check:
        return _check(arguments)
    from waterclock.pipelines.engines import ENGINES
    from waterclock.pipelines.progress import Bar
    from waterclock.streaming.statistics import prometheus
    from waterclock.streaming.toml.config import load

    config = load(arguments.pipeline)
    engine = ENGINES[_engine(arguments, config)](config, arguments.pipeline, arguments.master)
    if arguments.fresh:
        engine.start_over()
    with closing(engine.configured()) as pipeline:
        pipeline.check()
        shown = arguments.metrics, "run", pipeline.statistics, prometheus
        server = option.open_server(*shown, console=arguments.console, hide_values=arguments.hide_values)
        with server, Bar(config.name, quiet=arguments.json, note=engine.note) as bar:
            summary = engine.run(pipeline, arguments.live, bar.report)
    _print_summary(arguments, summary)
    return 0


def is_local(arguments: argparse.Namespace) -> bool:
    """Whether a run is without Spark, as far as it is known where packages are missing."""
    import tomllib
    from pathlib import Path

    if arguments.engine is not None:
        return bool(arguments.engine == "local")
    with suppress(OSError, ValueError, AttributeError):
        file = tomllib.loads(Path(arguments.pipeline).read_text("utf-8-sig"))
        return file.get("pipeline", {}).get("engine") == "local"  # type: ignore[no-any-return]
    return False


def _engine(arguments: argparse.Namespace, config: Any) -> str:
    """The command's engine, else the file's; `config` is None if that cannot be read."""
    return arguments.engine or ("local" if config is not None and config.local.is_chosen else "spark")


def _check(arguments: argparse.Namespace) -> int:
    """Print what is wrong, and what only a run can show; 1 if something is wrong."""
    from waterclock.pipelines.engines import check
    from waterclock.streaming.toml.config import read

    if arguments.fresh:
        raise UsageError("--check changes nothing, and looks at what is there: leave out --fresh")
    config, _ = read(arguments.pipeline)
    found = check(_engine(arguments, config), arguments.pipeline)
    if arguments.json:
        print(json.dumps(asdict(found), indent=1))
        return 1 if found.faults else 0
    for fault in found.faults:
        print(f"wrong: {fault}")
    for part in found.unchecked:
        print(f"not checked: {part}")
    print(f"{arguments.pipeline}: {len(found.faults) or 'nothing'} wrong, {len(found.unchecked)} not checked")
    return 1 if found.faults else 0


def _print_summary(arguments: argparse.Namespace, summary: Any) -> None:
    from waterclock.pipelines.progress import summary_record, summary_table

    if arguments.json:
        print(json.dumps(summary_record(summary), indent=1))
    else:
        summary_table(summary)
