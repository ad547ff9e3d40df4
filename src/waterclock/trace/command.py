"""`waterclock trace`: the walk through a scenario as tables, as JSON, or in real time."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from waterclock.errors import UsageError
from waterclock.trace.scenario import FLAT, NAMES, Scenario, build_scenario, load_scenario

if TYPE_CHECKING:
    from waterclock.trace.moments import Moments
    from waterclock.trace.walk import Step, Walk

ABOUT: Final = "Show how a hierarchical timing wheel places, passes down and runs timers."
EPILOG: Final = """examples:
  waterclock trace seven-tasks --clock 14:40:20.558 --verbose
  waterclock trace --tick 1s --slots 3 --tasks 1s,2s,7s
  waterclock trace --tasks 2ms,8ms@2ms,19ms@2ms
  waterclock trace --tick 1s --slots 60,60,12 --tasks 59s,61s,1h --rounding late
  waterclock trace --tick 1s --slots 3 --tasks 1s,2s,7s --live
"""


def add_to(parser: argparse.ArgumentParser) -> None:
    """The options, a description and examples."""
    parser.description = ABOUT
    parser.epilog = EPILOG
    parser.set_defaults(command=run)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("scenario", nargs="?", metavar="SCENARIO", help=f"one of {', '.join(NAMES)}")
    tasks = "your own timers instead: delays such as 1s,2s,7s; 8ms@2ms is added 2 ms after the start, for 8 ms"
    parser.add_argument("--tasks", metavar="DELAYS", help=tasks)
    tick = "with --tasks: the time of a bucket of level 1: 1ms (the default, and Kafka's), 100ms or 1s; a bare number is ms"
    parser.add_argument("--tick", metavar="TIME", help=tick)
    slots = "with --tasks: buckets of each level, such as 60,60,12 (default 20, as Kafka has)"
    parser.add_argument("--slots", metavar="N[,N...]", help=slots)
    parser.add_argument(
        "--rounding",
        choices=("early", "late"),
        default="early",
        help="early: as Kafka does, a bucket fires at its start; late: never before the deadline",
    )
    clock = "times of day instead of times since the start, which is at this one: 14:40:20.558"
    parser.add_argument("--clock", metavar="HH:MM:SS", help=clock)
    verbose = "each level's parameters, virtual ids, empty buckets too, and the wheel in the middle of an advance"
    parser.add_argument("--verbose", action="store_true", help=verbose)
    live = "in real time: a thread takes the buckets that expire, and ends after two idle seconds"
    parser.add_argument("--live", action="store_true", help=live)
    browser = "in a browser on this machine, with a slider, until Ctrl-C; without SCENARIO all that are worked out"
    parser.add_argument("--console", action="store_true", help=browser)
    parser.add_argument("--json", action="store_true", help="the same steps as JSON, times in ms as they are")


def run(arguments: argparse.Namespace) -> int:
    """Print the walk; 0 when done, 1 when stopped, 2 when the arguments make no scenario, with the remedy."""
    from waterclock.trace.walk import Walk

    try:
        if arguments.scenario == FLAT:
            return _flat(arguments)
        if arguments.console:
            return _serve(arguments)
        scenario = _chosen(arguments)
        walk = Walk(scenario, arguments.rounding)
        if arguments.json:
            _print_json(walk, arguments)
        elif arguments.live:
            _print_live(walk, arguments)
        else:
            _print_all(walk, arguments)
    except UsageError as error:
        print(f"waterclock trace: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("waterclock trace: stopped", file=sys.stderr)
        return 1
    return 0


def _chosen(arguments: argparse.Namespace) -> Scenario:
    if arguments.live and arguments.json:
        raise UsageError("--live is for people and --json for programs: leave one out")
    if arguments.tasks is None:
        if arguments.tick is not None or arguments.slots is not None:
            raise UsageError("--tick and --slots need timers: add --tasks, such as --tasks 1s,2s,7s")
        return load_scenario(arguments.scenario or "seven-tasks")
    if arguments.scenario is not None:
        raise UsageError(f"scenario {arguments.scenario!r} and --tasks exclude each other: leave one out")
    # where there is a clock, the wheel starts at that time of day, and its hands stand at whole ticks of it
    start_ms = _clock_ms(arguments) or 0
    return build_scenario(arguments.tick or "1ms", arguments.slots or "20", arguments.tasks, start_ms)


def _clock_ms(arguments: argparse.Namespace) -> int | None:
    from waterclock.trace.moments import parse_time_of_day

    return None if arguments.clock is None else parse_time_of_day(arguments.clock)


def _moments(scenario: Scenario, arguments: argparse.Namespace) -> Moments:
    from waterclock.trace import moments

    clock_ms = _clock_ms(arguments)
    if clock_ms is not None:
        return moments.on_the_clock(scenario.start_ms, clock_ms)
    if scenario.letter:
        return moments.by_letter(scenario.letter, scenario.start_ms)
    return moments.since(scenario.start_ms)


def _pages(walk: Walk, arguments: argparse.Namespace) -> tuple[str, Callable[[int, Step], str]]:
    """What is printed first, and how a step is printed."""
    from waterclock.trace import picture

    scenario = walk.scenario
    at = _moments(scenario, arguments)
    head = picture.show_head(scenario, arguments.rounding, at)
    if not arguments.verbose:
        return head, lambda number, step: picture.show_step(number, step, scenario, at)
    begin = picture.show_whole(0, walk.begin(), scenario, at)
    return f"{head}\n{begin}", lambda number, step: picture.show_whole(number, step, scenario, at)


def _print_all(walk: Walk, arguments: argparse.Namespace) -> None:
    head, page = _pages(walk, arguments)
    steps = list(walk.steps())  # before anything is printed: what is wrong with it is printed alone
    print(head)
    for number, step in enumerate(steps, 1):
        print(page(number, step))


def _print_live(walk: Walk, arguments: argparse.Namespace) -> None:
    from itertools import count

    from waterclock.clock import SystemClock
    from waterclock.trace.live import IDLE_S, Live
    from waterclock.wording import show_duration

    head, page = _pages(walk, arguments)
    numbers = count(1)
    print(head, flush=True)

    def show(step: Step, passed_ms: float) -> None:
        print(f"     {show_duration(int(passed_ms))} after the start, by the machine's clock")
        print(page(next(numbers), step), flush=True)

    Live(walk, SystemClock(), show).run()
    print(f"nothing has waited for {IDLE_S:g} s: the thread ends")


def _serve(arguments: argparse.Namespace) -> int:
    import signal

    from waterclock.signals import heard
    from waterclock.trace import page
    from waterclock.trace.walk import Walk

    given = [name for name in ("--json", "--live", "--verbose") if getattr(arguments, name[2:])]
    if given:
        raise UsageError(f"--console shows every step in a browser, and {given[0]} prints: leave one out")
    if arguments.scenario is None and arguments.tasks is None:
        walks = page.worked(arguments.rounding)
    else:
        walk = Walk(_chosen(arguments), arguments.rounding)
        walks = [page.record(walk, arguments.rounding, [walk.begin(), *walk.steps()])]
    with suppress(KeyboardInterrupt), page.serve(walks) as server, heard():
        print(f"step through it at {server.url}/console/{page.PAGE}", flush=True)
        signal.pause()
    return 0


def _print_json(walk: Walk, arguments: argparse.Namespace) -> None:
    from waterclock.trace.walk import plain

    scenario = walk.scenario
    head = {"tick_ms": scenario.tick_ms, "wheel_size": list(scenario.slots), "start_ms": scenario.start_ms}
    first = [walk.begin()] if arguments.verbose else []
    steps = [*first, *(step if arguments.verbose else plain(step) for step in walk.steps())]
    print(json.dumps({**head, "rounding": arguments.rounding, "steps": steps}, indent=1))


def _flat(arguments: argparse.Namespace) -> int:
    from waterclock.trace import flat

    wanted = {
        "--tasks": arguments.tasks,
        "--clock": arguments.clock,
        "--tick": arguments.tick,
        "--slots": arguments.slots,
    }
    given = [name for name, value in wanted.items() if value is not None]
    given += [name for name in ("--verbose", "--live") if getattr(arguments, name[2:])]
    if given:
        raise UsageError(f"{FLAT} is a comparison of two wheels and has no {given[0]}: leave it out")
    found = flat.compare()
    print(flat.as_json(found) if arguments.json else flat.as_text(found))
    return 0
