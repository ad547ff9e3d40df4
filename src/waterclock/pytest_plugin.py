"""pytest's fixtures: a Kafka broker inside the test process, and an asyncio loop whose time is turned by hand.

    fixture                 scope       is
    kafka_broker            session     a running `Broker`, its data in a temporary folder
    kafka_topic             function    the name of a new topic with one partition on it
    kafka_broker_factory    function    `factory(settings=..., clock=..., data=...)`: a running broker of the test's own
    manual_loop             function    a `ManualLoop`; with real sockets: @pytest.mark.manual_loop(sockets="allowed")
    kafka_universe          function    a `Universe` of a seed, the test runs once with each of
                                        @pytest.mark.kafka_universe(seeds=range(10), faults=..., settings=...)

One broker serves all tests of a session: a client's own start costs more than its topic does, and a fresh topic keeps tests
apart. What a topic cannot keep apart (settings, a clock turned by hand, a restart) asks the factory.

Rule 1: nothing but pytest and the standard library is imported before a test asks for a fixture.
Rule 2: faults that a test set on `kafka_broker` end with the test.
Rule 3: --waterclock-seed N has tests of `kafka_universe` run with that seed alone; one that fails says so.
Rule 4: a test that is paused in the debugger says where its broker is seen live (`kafka_broker`), until it goes on.
Rule 5: the entry point has this module's name: whoever names the module too, by -p or pytest_plugins, gets it once.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from waterclock.simulation.universe import Universe
    from waterclock.testing import Broker
    from waterclock.timer.manual_loop import ManualLoop

SEED: Final = "--waterclock-seed"
LONGEST_NAME: Final = 200  # of a topic, before its number
_brokers: Final = pytest.StashKey[list["Broker"]]()
_paused: Final = pytest.StashKey[ExitStack]()
_numbers: Final = itertools.count()


def enter_broker(stack: ExitStack, *data: Any, **arguments: Any) -> Broker:
    """A running broker; a test that asks for one without the packages that it needs fails with the way to get them."""
    try:
        from waterclock.testing import Broker

        return stack.enter_context(Broker(*data, **arguments))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "waterclock"):
            raise
        from waterclock.errors import pip_install, see_doctor

        why = f"{missing} is missing, and a broker needs it: {pip_install('broker')}"
        pytest.fail(f"{why}\n{see_doctor('broker')}", pytrace=False)


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """A Kafka broker for the whole session; `kafka_broker.bootstrap` is for bootstrap.servers."""
    with ExitStack() as stack:
        broker = enter_broker(stack)
        pytestconfig.stash[_brokers] = [broker]
        yield broker
        del pytestconfig.stash[_brokers]


def pytest_enter_pdb(config: pytest.Config) -> None:
    """Rule 4."""
    if brokers := config.stash.get(_brokers, []):
        from waterclock.broker.statistics import prometheus
        from waterclock.web.option import open_server

        pytest_leave_pdb(config)
        config.stash[_paused] = stack = ExitStack()
        for broker in brokers:
            stack.enter_context(
                open_server(None, "broker", broker.statistics, prometheus, None, broker.dials, console=True)
            )


def pytest_leave_pdb(config: pytest.Config) -> None:
    """It goes on."""
    if (stack := config.stash.get(_paused, None)) is not None:
        stack.close()


@pytest.fixture
def kafka_topic(kafka_broker: Broker, request: pytest.FixtureRequest) -> str:
    """A new topic with one partition, named after the test."""
    test = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:LONGEST_NAME]
    name = f"{test}.{next(_numbers)}"
    kafka_broker.create_topic(name)
    return name


@pytest.fixture
def kafka_broker_factory() -> Iterator[Callable[..., Broker]]:
    """Makes running brokers with the arguments of `Broker`; all of them are closed when the test is over."""
    with ExitStack() as stack:
        yield partial(enter_broker, stack)


@pytest.fixture
def manual_loop(request: pytest.FixtureRequest) -> Iterator[ManualLoop]:
    """A whole asyncio loop on a ManualClock: `manual_loop.run_until_complete(main())`, `manual_loop.advance(86_400)`."""
    from waterclock.timer.manual_loop import manual_loop as make

    mark = request.node.get_closest_marker("manual_loop") or pytest.mark.manual_loop().mark
    with ExitStack() as stack:
        try:
            loop = stack.enter_context(make(*mark.args, **mark.kwargs))
        except (TypeError, ValueError) as error:
            pytest.fail(f"@pytest.mark.manual_loop takes (clock, sockets='allowed'): {error}", pytrace=False)
        yield loop


def about_universe(of: pytest.Item) -> dict[str, Any]:
    """What the test's mark says."""
    mark = of.get_closest_marker("kafka_universe")
    return {"seeds": range(10), **(mark.kwargs if mark is not None else {})}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each seed."""
    if "kafka_universe" in metafunc.fixturenames:
        seed = metafunc.config.getoption(SEED)
        seeds = about_universe(metafunc.definition)["seeds"] if seed is None else [seed]
        metafunc.parametrize("kafka_universe", seeds, indirect=True, ids=[f"seed{one}" for one in seeds])


@pytest.fixture
def kafka_universe(request: pytest.FixtureRequest) -> Iterator[Universe]:
    """A simulated broker with faults, around which the test runs its own asyncio code under virtual time."""
    from waterclock.errors import WaterclockError
    from waterclock.testing import universe

    about = about_universe(request.node)
    del about["seeds"]
    with ExitStack() as stack:
        try:
            world = stack.enter_context(universe(request.param, **about))
        except (TypeError, WaterclockError) as error:
            pytest.fail(f"a universe cannot be: {error}", pytrace=False)
        yield world


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A test that failed in a universe says what happened there, and what repeats it."""
    outcome: Any = yield
    report = outcome.get_result()
    world = getattr(item, "funcargs", {}).get("kafka_universe")
    if world is not None and report.when == "call" and report.failed:
        again = shlex.join(["pytest", item.nodeid, f"{SEED}={world.seed}"])
        report.sections.append(("universe", f"{world.story()}\nto repeat it: {again}"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Universes come first: the session's broker cannot run in the same process meanwhile."""
    items.sort(key=lambda item: "kafka_universe" not in getattr(item, "fixturenames", ()))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(SEED, type=int, metavar="N", help="run the tests of kafka_universe with this seed alone")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "manual_loop(clock, *, sockets): what the fixture manual_loop is made with")
    config.addinivalue_line("markers", "kafka_universe(*, seeds, faults, settings): of the fixture kafka_universe")


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """The session's broker is healthy again before the next test."""
    for broker in item.config.stash.get(_brokers, []):
        broker.faults.clear()
