"""`waterclock broker`: the broker as a process, until Ctrl-C or SIGTERM.

Rule 1: one line says where it listens, once it can be reached; nothing else goes to stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import partial

from waterclock.broker.broker import Broker
from waterclock.broker.security.access import Access, users_of
from waterclock.broker.settings import SETTINGS, Settings
from waterclock.errors import UsageError, WaterclockError


def serve(
    data: str | None,
    host: str,
    port: int,
    settings: Mapping[str, str],
    access: Access,
    say: Callable[[str], None],
    statistics_every_s: float | None = None,
    follow: str | None = None,
    beside: Callable[[Broker], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Run a broker until the process is asked to end; every so many seconds its statistics go to stderr, a line each.

    What `beside` opens is open while the broker is.

    WaterclockError where it ends by itself: what it follows cannot be followed, or its disk refuses.
    """
    allow_many_files()
    ended = [signal.SIGINT, signal.SIGTERM]
    signal.pthread_sigmask(signal.SIG_BLOCK, ended)  # before any thread starts: only sigwait below takes them
    broker = Broker(data, host=host, port=port, settings=settings, access=access, follow=follow)
    broker.when_failed(partial(os.kill, os.getpid(), signal.SIGTERM))
    with broker, beside(broker):
        where = f"data in {data}" if data else "data in a temporary folder, gone at the end (--data keeps it)"
        role = "ready" if broker.leads else "follower"
        say(f"waterclock broker {role} on {broker.bootstrap}, {where}")
        while statistics_every_s is not None and signal.sigtimedwait(ended, statistics_every_s) is None:
            print(json.dumps(asdict(broker.statistics())), file=sys.stderr, flush=True)
        if statistics_every_s is None:
            signal.sigwait(ended)
        failure = broker.failure
    if failure is not None:
        raise failure if isinstance(failure, WaterclockError) else WaterclockError(f"the broker has ended: {failure}")


def allow_many_files() -> None:
    """Raise the limit of open files as far as it may be: a partition holds one, a connection one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def access(arguments: argparse.Namespace) -> Access:
    """Who may connect, from the command's options and, without --users, from the environment."""
    return Access(
        users=users_of(arguments.users, os.environ), tls_cert=arguments.tls_cert, tls_key=arguments.tls_key,
        advertise=arguments.advertise, insecure_remote=arguments.insecure_remote,
    )  # fmt: skip


def parsed(pairs: list[str]) -> dict[str, str]:
    """The settings of several KEY=VALUE; UsageError where one is none.

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
