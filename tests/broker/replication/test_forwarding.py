"""What only a leader can change, asked of its follower: it is passed on, and answered as if the leader had been asked."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.admin import SET, TOPIC, change, create, plain, say, setting, shake
from tests.broker.replication.pairs import Pair, pair, until
from tests.conformance.acls import CLUSTER, Granting, acl, filter_of
from tests.conformance.wire import Wire
from waterclock.bench.servers import apache
from waterclock.broker import Access, Broker, LinkAccess
from waterclock.broker.replication.link import ENVELOPE, Forwarder
from waterclock.broker.security.link import OPEN
from waterclock.broker.wire.errors import Error

AUTHORIZED = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
ADMIN, ALICE, REPLICA = ("admin", "a"), ("alice", "b"), ("replica", "c")
ACCESS = Access(users=tuple(map(":".join, (ADMIN, ALICE, REPLICA))), link=LinkAccess(*REPLICA))


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    """Where nobody says who it is, and everybody may everything."""
    with pair(tmp_path, AUTHORIZED | {"super.users": "User:ANONYMOUS"}) as brokers:
        yield brokers


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Pair]:
    """With users, of whom alice may only what an ACL says."""
    settings = AUTHORIZED | {"super.users": "User:admin;User:replica"}
    with pair(tmp_path, settings, access=(ACCESS, ACCESS)) as brokers:
        yield brokers


def logged_in(wire: Wire, user: tuple[str, str]) -> Wire:
    shake(wire)
    assert say(wire, plain(*user)).error_code == 0
    return wire


def granted(wire: Wire) -> str:
    """CreateAcls, once; the name of its error."""
    creations = [acl("read", "topic", "t").creation()]
    return str(wire.ask("create_acls", 3, creations=creations).results[0].error_code.name)


def test_a_follower_takes_acls_and_they_are_the_leaders(both: Pair) -> None:
    """It said NOT_CONTROLLER, which Java's client does not heed: it asked the same broker for a minute."""
    with Wire(both.two.bootstrap) as follower, Wire(both.one.bootstrap) as leader:
        assert granted(follower) == "none"
        assert len(Granting(leader).find(**filter_of())) == 1
        until(lambda: len(Granting(follower).find(**filter_of())) == 1)
        gone = follower.ask("delete_acls", 3, filters=[filter_of()]).filter_results[0]
        assert (gone.error_code.name, len(gone.matching_acls)) == ("none", 1)
        assert len(Granting(leader).find(**filter_of())) == 0


def test_a_follower_takes_topics_and_settings(both: Pair) -> None:
    with Wire(both.two.bootstrap) as follower, Wire(both.one.bootstrap) as leader:
        assert create(follower, "new").error_code.name == "none"
        assert create(follower, "new").error_code.name == "topic_already_exists"
        assert change(follower, TOPIC, "new", ("retention.ms", SET, "7777")) == "none"
        assert setting(leader, TOPIC, "new", "retention.ms")[0] == "7777"
        assert setting(follower, TOPIC, "new", "retention.ms")[0] == "7777"


def test_what_the_leader_answers_in_slices_comes_whole(both: Pair) -> None:
    resources = [{"resource_type": TOPIC, "resource_name": name} for name in ["t", *map(str, range(20))]]
    with Wire(both.two.bootstrap) as follower, Wire(both.one.bootstrap) as leader:
        passed_on, own = (wire.ask("describe_configs", 4, resources=resources) for wire in (follower, leader))
        assert passed_on == own
        assert len(own.results) == 21


def test_what_is_passed_on_keeps_its_order(both: Pair) -> None:
    deeds = [{"name": "retention.ms", "config_operation": SET, "value": str(n)} for n in range(20)]
    with Wire(both.two.bootstrap) as follower, Wire(both.one.bootstrap) as leader:
        for deed in deeds:
            asked = {"resource_type": TOPIC, "resource_name": "t", "configs": [deed]}
            follower.send("incremental_alter_configs", 1, resources=[asked])
        for _ in deeds:
            assert follower.receive("incremental_alter_configs", 1).responses[0].error_code.name == "none"
        assert setting(leader, TOPIC, "t", "retention.ms")[0] == "19"


def test_one_request_is_passed_on_after_the_other() -> None:
    """The leader may take longer for the first: for one that makes a topic than for one that changes it."""
    begun: list[int] = []

    class Slow(Forwarder):
        async def _asked(self, request: Any) -> Error:
            begun.append(request.number)
            await asyncio.sleep(0)
            begun.append(request.number)
            return Error.NOT_CONTROLLER

    async def both() -> None:
        tasks: list[asyncio.Task[None]] = []
        identity: Any = None
        forwarder = Slow(identity, lambda asking: tasks.append(asyncio.ensure_future(asking)), OPEN)
        requests: list[Any] = [SimpleNamespace(number=n, slot=SimpleNamespace(gone=False)) for n in range(2)]
        for request in requests:
            forwarder.forward(request)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert begun == [0, 0, 1, 1]

    asyncio.run(both())


def test_a_client_that_is_gone_when_its_turn_comes_is_not_waited_for(both: Pair) -> None:
    with Wire(both.two.bootstrap) as gone:
        for _ in range(50):
            gone.send("describe_configs", 4, resources=[{"resource_type": TOPIC, "resource_name": "t"}])
    with Wire(both.two.bootstrap) as follower:
        assert create(follower, "new").error_code.name == "none"


def test_the_leader_decides_by_the_rights_of_who_asked_the_follower(guarded: Pair) -> None:
    """Not by those of the link's user, who may everything."""
    with Wire(guarded.two.bootstrap) as alice, Wire(guarded.one.bootstrap) as admin:
        logged_in(alice, ALICE)
        logged_in(admin, ADMIN)
        assert change(alice, TOPIC, "t", ("retention.ms", SET, "7")) == "topic_authorization_failed"
        assert granted(alice) == "cluster_authorization_failed"
        Granting(admin).create(acl("alter configs", "topic", "t", principal="User:alice"))
        assert change(alice, TOPIC, "t", ("retention.ms", SET, "7")) == "none"
        assert setting(admin, TOPIC, "t", "retention.ms")[0] == "7"


def enveloped(wire: Wire, user: str, address: bytes = b"\x7f\0\0\1") -> Any:
    """What `user` asks for, in somebody's envelope."""
    inside = wire.encoded("create_acls", 3, creations=[acl("read", "topic", "t").creation()])
    return wire.ask("envelope", 0, request_data=inside, request_principal=user.encode(), client_host_address=address)


def test_an_envelope_of_anybody_else_is_not_opened(guarded: Pair) -> None:
    with Wire(guarded.one.bootstrap) as wire:
        logged_in(wire, ADMIN)
        assert enveloped(wire, "admin").error_code.name == "cluster_authorization_failed"
        assert len(Granting(wire).find(**filter_of())) == 0


def test_where_nobody_says_who_it_is_an_envelope_takes_the_right_of_brokers(tmp_path: Path) -> None:
    """ACLs may still be about addresses, and an envelope names one."""
    host = {"principal": "User:ANONYMOUS", "host": "10.0.0.1"}
    settings = AUTHORIZED | {"super.users": "User:ANONYMOUS"}
    with Broker(tmp_path / "one", settings=settings) as broker, Wire(broker.bootstrap) as wire:
        Granting(wire).create(acl("alter", "cluster", CLUSTER, **host))
    with Broker(tmp_path / "one", settings=AUTHORIZED) as broker, Wire(broker.bootstrap) as wire:
        said = enveloped(wire, "ANONYMOUS", b"\x0a\0\0\1")
        assert (said.error_code.name, said.response_data) == ("cluster_authorization_failed", None)


def test_in_an_envelope_is_only_what_followers_pass_on(both: Pair) -> None:
    with Wire(both.one.bootstrap) as wire:
        inside = wire.encoded("envelope", 0, request_data=b"", client_host_address=b"\x7f\0\0\1")
        said = wire.ask("envelope", 0, request_data=inside, client_host_address=b"\x7f\0\0\1")
        assert said.error_code.name == "invalid_request"
        told = wire.ask("api_versions", 3, client_software_name="a", client_software_version="1").api_keys
        assert ENVELOPE not in [row.api_key for row in told]


def test_without_its_leader_a_follower_says_that_it_is_not_the_controller(both: Pair) -> None:
    both.one.close()
    with Wire(both.two.bootstrap) as follower:
        assert create(follower, "new").error_code.name == "not_controller"


TOOLS = {
    "org.apache.kafka.tools.AclCommand": [
        "--add", "--allow-principal", "User:alice", "--operation", "read", "--topic", "t",
    ],
    "kafka.admin.ConfigCommand": [
        "--alter", "--entity-type", "topics", "--entity-name", "t", "--add-config", "retention.ms=7777",
    ],
    "org.apache.kafka.tools.TopicCommand": ["--create", "--topic", "new"],
}  # fmt: skip


@pytest.mark.servers
@pytest.mark.parametrize("tool", TOOLS)
def test_javas_tools_change_things_by_a_follower(tool: str, both: Pair) -> None:
    apache.fetch()
    command = apache.tool(tool, "--bootstrap-server", both.two.bootstrap, *TOOLS[tool])
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
