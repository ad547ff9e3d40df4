"""`waterclock trace`: the walk through a scenario as tables, or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

from waterclock.errors import UsageError
from waterclock.trace.scenario import SCENARIOS, Scenario, build_scenario, load_scenario

ABOUT: Final = "Show how a hierarchical timing wheel places timers, passes them down and runs them, step by step."
EPILOG: Final = """examples:
  waterclock trace seven-tasks
  waterclock trace --tick 1s --slots 3 --tasks 1s,2s,7s
  waterclock trace --tick 1s --slots 60,60,12 --tasks 59s,61s,1h --rounding late
"""


def add_to(parser: argparse.ArgumentParser) -> None:
    """The options, a description and examples."""
    parser.description = ABOUT
    parser.epilog = EPILOG
    parser.set_defaults(command=run)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("scenario", nargs="?", metavar="SCENARIO", help=f"one of {', '.join(SCENARIOS)}")
    parser.add_argument("--tasks", metavar="DELAYS", help="your own timers instead: delays such as 1s,2s,7s")
    parser.add_argument("--tick", metavar="TIME", help="with --tasks: the grain of level 1 (default 1ms)")
    parser.add_argument("--slots", metavar="N[,N...]", help="with --tasks: buckets of each level (default 20)")
    parser.add_argument(
        "--rounding",
        choices=("early", "late"),
        default="early",
        help="early: as Kafka does, a bucket fires at its start; late: never before the deadline",
    )
    parser.add_argument("--json", action="store_true", help="the same steps as JSON, times in ms as they are")


def run(arguments: argparse.Namespace) -> int:
    """Print the walk; 0 when done, 2 when the arguments make no scenario (the error says what to change)."""
    from waterclock.trace.picture import show_head, show_step
    from waterclock.trace.walk import Walk

    try:
        scenario = _chosen(arguments)
        steps = list(Walk(scenario, arguments.rounding).steps())
    except UsageError as error:
        print(f"waterclock trace: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        head = {
            "tick_ms": scenario.tick_ms,
            "wheel_size": list(scenario.slots),
            "start_ms": scenario.start_ms,
        }
        print(json.dumps({**head, "rounding": arguments.rounding, "steps": steps}, indent=1))
        return 0
    print(show_head(scenario, arguments.rounding))
    for number, step in enumerate(steps, 1):
        print(show_step(number, step, scenario))
    return 0


def _chosen(arguments: argparse.Namespace) -> Scenario:
    if arguments.tasks is None:
        if arguments.tick is not None or arguments.slots is not None:
            raise UsageError("--tick and --slots need timers: add --tasks, such as --tasks 1s,2s,7s")
        return load_scenario(arguments.scenario or "seven-tasks")
    if arguments.scenario is not None:
        raise UsageError(f"scenario {arguments.scenario!r} and --tasks exclude each other: leave one out")
    return build_scenario(arguments.tick or "1ms", arguments.slots or "20", arguments.tasks)
