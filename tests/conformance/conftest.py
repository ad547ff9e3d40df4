"""The brokers under test, and names that belong to one test.

BROKERS names them: `BROKERS=ours` (the default), `BROKERS=apache`, `BROKERS=ours,apache`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest

for package in ("kio", "crc32c"):
    pytest.importorskip(package, reason="the conformance suite needs the group `servers` of pyproject.toml")

from tests.conformance.dialogue import Dialogue
from tests.conformance.settings import SETTINGS
from tests.conformance.wire import Wire
from tests.servers.server import Server

BROKERS = {"ours": "tests.servers.ours:OurBroker", "apache": "tests.servers.apache:ApacheKafka"}
CHOSEN = os.environ.get("BROKERS", "ours").split(",")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        marks = {"apache": [pytest.mark.servers], "ours": []}
        chosen = [pytest.param(name, marks=[*marks[name], pytest.mark.xdist_group(name)]) for name in CHOSEN]
        metafunc.parametrize("kind", chosen, scope="session", indirect=True)


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> str:
    """Which broker: `ours` or `apache`."""
    if request.param == "ours" and importlib.util.find_spec("waterclock.broker") is None:
        pytest.skip("our broker is not there yet")
    return str(request.param)


@pytest.fixture(scope="session")
def start(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Mapping[str, str]], Server]]:
    """Start one more broker of this kind; it is stopped in the end."""
    from pkgutil import resolve_name

    begun: list[Server] = []

    def begin(settings: Mapping[str, str]) -> Server:
        begun.append(resolve_name(BROKERS[kind])(tmp_path_factory.mktemp(kind), {**SETTINGS, **settings}))
        return begun[-1]

    yield begin
    for server in begun:
        server.kill()


@pytest.fixture(scope="session")
def server(start: Callable[[Mapping[str, str]], Server]) -> Server:
    """The broker that most tests share; never restarted."""
    return start({})


@pytest.fixture
def bootstrap(server: Server) -> str:
    return server.bootstrap


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return f"n{uuid4().hex[:12]}"


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    """A plain connection."""
    with Wire(server.bootstrap) as connection:
        yield connection


@pytest.fixture
def dialogue(wire: Wire) -> Dialogue:
    """The connection with whole sentences."""
    return Dialogue(wire)


@pytest.fixture
def new_topic(dialogue: Dialogue) -> Callable[..., str]:
    """Make a topic: `new_topic(partitions=3, **{"cleanup.policy": "compact"})`."""

    def make(partitions: int = 1, **configs: Any) -> str:
        return dialogue.create_topic(f"t{uuid4().hex[:12]}", partitions, **configs)

    return make


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    """A topic with one partition, made for this test."""
    return new_topic()
