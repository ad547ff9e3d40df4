"""`waterclock broker`: the broker as a process, until Ctrl-C or SIGTERM.

Rule 1: one line says where it listens, once it can be reached; nothing else goes to stdout.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

from waterclock.broker import interpreter
from waterclock.broker.broker import Broker
from waterclock.broker.replication.promoting import checked
from waterclock.broker.security.access import Access, users_of
from waterclock.broker.security.link import LinkAccess, login_of
from waterclock.broker.settings import SETTINGS, Settings
from waterclock.broker.statistics import BrokerStatistics, prometheus
from waterclock.disk import allow_many_files
from waterclock.errors import UsageError, WaterclockError
from waterclock.outside import os
from waterclock.web.option import open_server

_ENDED: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """What a broker's process serves, and what it shows of itself: None if nothing is wanted."""

    data: str | None  # a folder; None: a temporary one
    host: str
    port: int
    settings: Mapping[str, str]
    access: Access
    statistics_every_s: float | None = None  # a line on stderr each time
    follow: str | None = None  # HOST:PORT of the broker to copy
    metrics_port: int | None = None
    console: bool = False


def serve(options: BrokerOptions) -> None:
    """Run a broker until the process is to end.

    WaterclockError if it ends by itself: what it follows cannot be followed, or its disk refuses.
    """
    allow_many_files()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDED)  # before any thread starts: only sigwait below takes them
    broker = Broker(
        options.data, host=options.host, port=options.port, settings=options.settings, access=options.access,
        follow=options.follow,
    )  # fmt: skip
    broker.when_failed(partial(os.kill, os.getpid(), signal.SIGTERM))
    shown = options.metrics_port, "broker", broker.statistics, prometheus, None, broker.dials, options.console
    with broker, open_server(*shown):
        interpreter.pause_little()
        interpreter.own_process()
        where = (
            f"data in {options.data}"
            if options.data
            else "data in a temporary folder, gone at the end (--data keeps it)"
        )
        role = "ready" if broker.leads else "follower"
        print(f"waterclock broker {role} on {broker.bootstrap}, {where}", flush=True)
        every_s = options.statistics_every_s  # until a signal comes
        while every_s is not None and signal.sigtimedwait(_ENDED, every_s) is None:
            print(line(broker.statistics()), file=sys.stderr, flush=True)
        if every_s is None:
            signal.sigwait(_ENDED)
        failure = broker.failure
    if failure is not None:
        raise failure if isinstance(failure, WaterclockError) else WaterclockError(f"the broker has ended: {failure}")


def line(statistics: BrokerStatistics) -> str:
    """Statistics as `--statistics-every` prints them. There a number stays a number, for those who read it so since ever:
    what is not known is 0, and the lag -1."""
    record = asdict(statistics)
    for part, unknown in (("flushes", 0.0), ("replication", 0)):
        record[part] = {name: unknown if value is None else value for name, value in record[part].items()}
    if statistics.replication.lag is None:
        record["replication"]["lag"] = -1
    return json.dumps(record)


def options_of(arguments: argparse.Namespace) -> BrokerOptions:
    """What the command's options say; who may connect without --users, the environment says. UsageError if they are
    wrong."""
    settings = parsed(arguments.set)
    access = Access(
        users=users_of(arguments.users, os.environ), tls_cert=arguments.tls_cert, tls_key=arguments.tls_key,
        advertise=arguments.advertise, insecure_remote=arguments.insecure_remote, link=link_of(arguments),
    )  # fmt: skip
    follow = arguments.follow and checked(arguments.follow, "--follow")
    return BrokerOptions(
        arguments.data, arguments.host, arguments.port, settings, access, arguments.statistics_every, follow,
        arguments.metrics, arguments.console,
    )  # fmt: skip


def link_of(arguments: argparse.Namespace) -> LinkAccess:
    """How the other broker is spoken to, by the options and the environment; UsageError if they are wrong."""
    access = LinkAccess(*login_of(arguments.link_login, os.environ), arguments.link_mechanism, arguments.link_ca)
    access.check()
    return access


def parsed(pairs: list[str]) -> dict[str, str]:
    """The settings of several KEY=VALUE; UsageError if one is none.

    >>> parsed(["num.partitions=3"])
    {'num.partitions': '3'}
    """
    for pair in pairs:
        if "=" not in pair:
            raise UsageError(f"--set takes KEY=VALUE, got {pair!r}")
    settings = dict(pair.split("=", 1) for pair in pairs)
    Settings(settings)
    return settings


def listed() -> str:
    """All settings with their defaults, a line each."""
    return "\n".join(f"{s.name}={s.default}  # {s.doc}" for s in SETTINGS.values())
