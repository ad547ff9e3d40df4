"""The brokers under test, and names that belong to one test.

BROKERS names them: `BROKERS=ours` (the default), `BROKERS=apache`, `BROKERS=ours,apache`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tests.conformance.settings import DIFFERENCES, SETTINGS
from waterclock.bench.servers.server import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conformance.acls import Granting
    from tests.conformance.dialogue import Dialogue
    from tests.conformance.mixed import Makes, Mixed, OldReader
    from tests.conformance.readers import Reader
    from tests.conformance.wire import Wire

# what each file cannot do without; all of it is in the group `servers` of pyproject.toml
NEEDED = {
    "*.py": ("kio", "crc32c"),
    "test_stored.py": ("cramjam", "lz4", "zstandard"),
    "*client*.py": ("confluent_kafka", "aiokafka", "kafka"),
    "test_spark*.py": ("pyspark", "confluent_kafka"),
}
MISSING = {glob: [p for p in packages if not importlib.util.find_spec(p)] for glob, packages in NEEDED.items()}
collect_ignore_glob = [glob for glob, packages in MISSING.items() if packages]
BROKERS = {"ours": "waterclock.bench.servers.ours:OurBroker", "apache": "waterclock.bench.servers.apache:ApacheKafka"}
CHOSEN = os.environ.get("BROKERS", "ours").split(",")


def pytest_report_header() -> list[str]:
    """Who is tested, and what is left out."""
    left_out = [f"without {', '.join(packages)} no {glob}" for glob, packages in MISSING.items() if packages]
    return [f"conformance: {', '.join(CHOSEN)}", *(f"conformance: {words}" for words in left_out)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        marks = {"apache": [pytest.mark.servers], "ours": []}
        chosen = [pytest.param(name, marks=marks[name]) for name in CHOSEN]
        metafunc.parametrize("kind", chosen, scope="session", indirect=True)


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> str:
    """Which broker: `ours` or `apache`."""
    if request.param == "ours" and importlib.util.find_spec("waterclock.broker") is None:
        pytest.skip("our broker is not there yet")
    return str(request.param)


@pytest.fixture(autouse=True)
def difference(request: pytest.FixtureRequest) -> None:
    """A wanted difference must fail on our broker: one that has gone is to be struck from the list."""
    name = getattr(request.node, "originalname", request.node.name)
    if name in DIFFERENCES and request.node.callspec.params.get("kind") == "ours":
        request.applymarker(pytest.mark.xfail(reason=DIFFERENCES[name], strict=True))


@pytest.fixture(scope="session")
def start(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Mapping[str, str]], Server]]:
    """Start one more broker of this kind; it is stopped in the end."""
    from tests.conformance.readiness import await_coordinators

    begun: list[Server] = []

    def begin(settings: Mapping[str, str]) -> Server:
        begun.append(resolve_name(BROKERS[kind])(tmp_path_factory.mktemp(kind), {**SETTINGS, **settings}))
        await_coordinators(begun[-1].bootstrap)
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


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session with Spark's own Kafka connector, for all kinds of brokers."""
    from tests.conformance.spark_session import session

    with session(tmp_path_factory.mktemp("spark") / "spark.log") as running:
        yield running


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return f"n{uuid4().hex[:12]}"


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    """A plain connection."""
    from tests.conformance.wire import Wire

    with Wire(server.bootstrap) as connection:
        yield connection


@pytest.fixture
def dialogue(wire: Wire) -> Dialogue:
    """The connection with whole sentences."""
    from tests.conformance.dialogue import Dialogue

    return Dialogue(wire)


@pytest.fixture
def new_topic(dialogue: Dialogue) -> Callable[..., str]:
    """Make a topic: `new_topic(partitions=3, **{"cleanup.policy": "compact"})`."""

    def make(partitions: int = 1, **configs: Any) -> str:
        return dialogue.create_topic(f"t{uuid4().hex[:12]}", partitions, **configs)

    return make


@pytest.fixture
def both(bootstrap: str, dialogue: Dialogue, name: str, new_topic: Callable[..., str]) -> Iterator[Mixed]:
    """A group for members of both protocols, and its topic."""
    from tests.conformance.mixed import Mixed

    with closing(Mixed(bootstrap, dialogue, name, new_topic(4))) as group:
        yield group


@pytest.fixture
def old(both: Mixed) -> Makes:
    """Makes members of the classic protocol, which have not joined yet."""
    return both.old


@pytest.fixture
def ann(both: Mixed) -> OldReader:
    return both.first()


@pytest.fixture
def bob(both: Mixed) -> Reader:
    """A member of the new protocol, which has not joined yet."""
    return both.new()


@pytest.fixture
def four(both: Mixed) -> str:
    """The topic, with four partitions."""
    return both.topic


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    """A topic with one partition, made for this test."""
    return new_topic()


@pytest.fixture(scope="session")
def authorized(start: Callable[[Mapping[str, str]], Server]) -> Server:
    """A broker with an authorizer; its guarded listener is the one to ask."""
    from tests.conformance.acls import AUTHORIZED

    return start(AUTHORIZED)


@pytest.fixture(scope="session")
def super_user(authorized: Server) -> Iterator[Wire]:
    """A connection of one who may do everything."""
    from tests.conformance.acls import BOB, logged_in
    from tests.conformance.readiness import await_coordinators_over

    with logged_in(authorized, BOB) as wire:
        await_coordinators_over(wire)
        yield wire


@pytest.fixture
def root(super_user: Wire) -> Dialogue:
    """The super user, with whole sentences."""
    from tests.conformance.dialogue import Dialogue

    return Dialogue(super_user)


@pytest.fixture
def granting(super_user: Wire) -> Iterator[Granting]:
    """The super user, who makes ACLs; they are gone after the test."""
    from tests.conformance.acls import Granting

    granting = Granting(super_user)
    yield granting
    granting.clear()


@pytest.fixture
def alice(authorized: Server) -> Iterator[Wire]:
    """A connection of a user who may do nothing but what a test grants."""
    from tests.conformance.acls import ALICE, logged_in

    with logged_in(authorized, ALICE) as wire:
        yield wire
