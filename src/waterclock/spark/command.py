"""`waterclock run`: a pipeline, its bar while it works, and its summary."""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import Any

from waterclock.arguments import describe, master
from waterclock.web import option


def add_to(parser: argparse.ArgumentParser) -> None:
    """The options."""
    describe(parser, run, "waterclock run orders.toml --live")
    parser.add_argument("pipeline", metavar="PIPELINE.toml", help="the pipeline's file")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="take what is there, close, end (the default)")
    how.add_argument("--live", action="store_true", help="go on taking what comes until Ctrl-C")
    parser.add_argument("--fresh", action="store_true", help="remove the checkpoint and the sink's tables first")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--master", type=master, metavar="URL", help="run on a cluster: spark://HOST:7077 or yarn")
    option.add_to(parser)


def run(arguments: argparse.Namespace) -> int:
    """`waterclock run`: a pipeline from its TOML file."""
    from waterclock.spark.fresh import start_over
    from waterclock.spark.pipeline import configured
    from waterclock.spark.progress import Bar
    from waterclock.spark.session.session import conf_for, start
    from waterclock.spark.toml.config import load, log_of
    from waterclock.spark.watching.prometheus import prometheus

    config = load(arguments.pipeline)
    conf = {**config.spark_conf, **({"spark.master": arguments.master} if arguments.master else {})}
    begin = partial(
        start, config.name, config.cores, conf_for(config.checkpoint, conf), log_of(config, arguments.pipeline)
    )
    session = begin(config.buckets) if config.is_remote() else None  # its places are reached through Spark
    if arguments.fresh:
        start_over(config)
    pipeline = configured(config)
    try:
        pipeline.check()
        server = option.open_server(arguments.metrics, "run", pipeline.statistics, prometheus)
        with server, Bar(config.name, quiet=arguments.json) as bar:
            session = session or begin(pipeline.buckets)
            summary = pipeline.run(session.spark, arguments.live, bar.report)
    finally:
        pipeline.close()
    _print_summary(arguments, summary)
    return 0


def _print_summary(arguments: argparse.Namespace, summary: Any) -> None:
    from waterclock.spark.progress import summary_record, summary_table

    if arguments.json:
        print(json.dumps(summary_record(summary), indent=1))
    else:
        summary_table(summary)
