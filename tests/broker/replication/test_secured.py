"""A pair whose link logs in and is encrypted: it follows, is promoted and deposed as any other, and nobody else follows."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.admin import create, log_in_by_scram, plain, say, shake
from tests.broker.replication.pairs import Pair, log_bytes, pair, until
from tests.broker.security.certificates import certificate
from tests.conformance.batches import batch
from tests.conformance.dialogue import Dialogue
from tests.conformance.wire import Closed, Wire
from waterclock.broker import Access, Broker, LinkAccess
from waterclock.broker.replication import tenure
from waterclock.broker.replication.journal import TOPIC
from waterclock.broker.replication.leader import JOURNAL_KEYS, KnownFollower
from waterclock.broker.replication.link import Link, LinkLost
from waterclock.broker.replication.tenure import shut_out
from waterclock.broker.security.link import login_of
from waterclock.broker.security.scram import Credential, Scram
from waterclock.broker.security.users import change
from waterclock.broker.wire import client as asking
from waterclock.broker.wire.errors import Error
from waterclock.errors import UsageError

USERS = ("alice:secret", "replica:hush")
LOGIN = LinkAccess("replica", "hush")
SECURED = Access(users=USERS, link=LOGIN)
STRANGER = KnownFollower("127.0.0.1:1", "0" * 32).name()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path, access=(SECURED, SECURED)) as brokers:
        yield brokers


def produce(broker: Broker, value: bytes) -> int:
    """The error of a record with acks=all."""
    with Wire(broker.bootstrap) as wire:
        shake(wire)
        say(wire, plain("alice", "secret"))
        return int(Dialogue(wire).produce("t", batch(value)).error_code.value)


def follows(broker: Broker) -> bool:
    return not broker.leads


async def fetched(address: str, access: LinkAccess, epoch: int = -1) -> Error:
    """The error of a fetch as a follower."""
    link = Link(address, STRANGER, access)
    try:
        await link.connect()
        body = asking.fetch(2, 0, 1, [asking.PartitionFetch(JOURNAL_KEYS[1], 0, epoch, 0, -1)])
        error, rows = await link.fetch(body)
        assert not any(len(row.records) for row in rows)
        return error
    finally:
        link.close()
        await asyncio.sleep(0)


async def journal_known(address: str, access: LinkAccess) -> Error:
    """What a follower is told that asks for the end of the journal's epoch."""
    link = Link(address, STRANGER, access)
    try:
        await link.connect()
        row = asking.part(23, 3, "OffsetForLeaderPartition", partition=0, current_leader_epoch=-1, leader_epoch=0)
        topic = asking.part(23, 3, "OffsetForLeaderTopic", topic=TOPIC, partitions=(row,))
        answer = await link.ask(23, 3, replica_id=2, topics=(topic,))
        return Error(answer.topics[0].partitions[0].error_code.value)
    finally:
        link.close()
        await asyncio.sleep(0)


def test_leadership_goes_to_and_fro_over_a_link_that_logs_in(both: Pair) -> None:
    for leader, follower in ((both.one, both.two), (both.two, both.one)):
        assert produce(leader, b"x") == 0
        follower.promote()
        until(partial(follows, leader))
        both.synced(follower)
        assert follower.inside.tenure.watch.says.last == ""
    assert log_bytes(both.one) == log_bytes(both.two)


def test_who_is_logged_in_at_the_follower_stays_so_when_it_is_promoted_and_others_have_to_log_in_still(
    both: Pair,
) -> None:
    with Wire(both.two.bootstrap) as known, Wire(both.two.bootstrap) as unknown, Wire(both.two.bootstrap) as stranger:
        stranger.ask("api_versions", 0)
        shake(known)
        say(known, plain("alice", "secret"))
        shake(unknown)
        both.two.promote()
        assert known.ask("metadata", 12, topics=[]).controller_id == 2
        assert say(unknown, plain("alice", "secret")).error_code.value == 0
        assert unknown.ask("metadata", 12, topics=[]).controller_id == 2
        with pytest.raises(Closed):
            stranger.ask("metadata", 12, topics=[])


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_inside_of_tls_too(tmp_path: Path, files: tuple[str, str], mechanism: str) -> None:
    link = LinkAccess("replica", "hush", mechanism, files[0])
    access = Access(users=USERS, tls_cert=files[0], tls_key=files[1], link=link)
    with pair(tmp_path, access=(access, access)) as both:
        both.two.promote()
        until(lambda: not both.one.leads)
        both.synced(both.two)


def test_tls_alone_is_enough_for_a_pair_without_users(tmp_path: Path, files: tuple[str, str]) -> None:
    access = Access(tls_cert=files[0], tls_key=files[1], link=LinkAccess(ca=files[0]))
    with pair(tmp_path, access=(access, access)) as both:
        assert both.one.call(lambda: both.one.inside.tenure.watch.says.last) == ""


def test_a_user_who_is_not_the_links_may_not_follow_depose_or_see_the_journal(
    both: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    alice = LinkAccess("alice", "secret")
    refused = Error.CLUSTER_AUTHORIZATION_FAILED
    assert asyncio.run(fetched(both.one.bootstrap, alice)) == refused
    assert asyncio.run(fetched(both.one.bootstrap, alice, epoch=99)) == refused
    assert asyncio.run(journal_known(both.one.bootstrap, alice)) == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert asyncio.run(journal_known(both.one.bootstrap, LOGIN)) == Error.NONE
    assert both.one.leads
    assert "logged in as 'alice', wants to follow, and may not" in caplog.text
    assert asyncio.run(fetched(both.one.bootstrap, LOGIN)) == Error.DUPLICATE_BROKER_REGISTRATION


def test_the_links_user_without_a_followers_name_is_a_client(both: Pair) -> None:
    with Wire(both.one.bootstrap) as wire:
        assert log_in_by_scram(wire, "SCRAM-SHA-256", "replica", "hush") == "none"
        assert wire.ask("metadata", 12, topics=[]).controller_id == 1


def test_a_leader_with_users_and_without_a_login_is_followed_by_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leader = Broker(tmp_path / "one", access=Access(users=USERS)).start()
    with closing(leader), Broker(tmp_path / "two", follow=leader.bootstrap, access=SECURED) as two:
        until(lambda: "its --link-login is another" in two.inside_follower.fetcher.says.last)
    assert "this broker has no --link-login" in caplog.text


@pytest.mark.parametrize(
    ("link", "says"),
    [
        (LinkAccess("replica", "wrong"), "Does --link-login fit?"),
        (LinkAccess("nobody", "hush"), "Does --link-login fit?"),
        (LinkAccess(), "does not answer"),
    ],
)
def test_who_cannot_log_in_copies_nothing_and_says_why(tmp_path: Path, link: LinkAccess, says: str) -> None:
    leader = Broker(tmp_path / "one", access=SECURED).start()
    with closing(leader), Broker(tmp_path / "two", follow=leader.bootstrap, access=Access(link=link)) as two:
        until(lambda: says in two.inside_follower.fetcher.says.last)
        assert two.call(lambda: two.inside_follower.replica.applied) is None


def test_a_certificate_of_nobody_known_or_for_another_name_is_not_believed(
    tmp_path: Path, files: tuple[str, str]
) -> None:
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    mine, other = certificate(tmp_path / "mine"), certificate(tmp_path / "other", "DNS:elsewhere")
    for served, trusted in ((files, mine), (other, other)):
        with Broker(access=Access(tls_cert=served[0], tls_key=served[1])) as leader:

            async def connect(address: str, ca: str) -> None:
                link = Link(address, "x", LinkAccess(ca=ca))
                try:
                    await link.connect()
                finally:
                    link.close()

            with pytest.raises(LinkLost, match="certificate verify failed"):
                asyncio.run(connect(leader.bootstrap, trusted[0]))


def test_a_broker_that_does_not_prove_that_it_knows_the_user_is_not_spoken_to(
    both: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lets everybody in, and listens."""
    step = Scram.step
    monkeypatch.setattr(Scram, "step", lambda self, token: step(self, token).replace(b"v=", b"v=x"))
    with pytest.raises(LinkLost, match="did not prove"):
        asyncio.run(fetched(both.one.bootstrap, LOGIN))


def test_a_link_that_wants_tls_never_goes_without(tmp_path: Path, files: tuple[str, str]) -> None:
    with Broker() as leader:
        access = Access(link=LinkAccess(ca=files[0]))
        with Broker(tmp_path, follow=leader.bootstrap, access=access) as two:
            until(lambda: "cannot be reached" in two.inside_follower.fetcher.says.last)


def test_a_follower_with_users_serves_nobody_else(both: Pair) -> None:
    with Wire(both.two.bootstrap) as wire:
        wire.ask("api_versions", 0)
        with pytest.raises(Closed):
            wire.ask("metadata", 12, topics=[])
    with Wire(both.two.bootstrap) as wire:
        shake(wire)
        assert say(wire, plain("alice", "secret")).error_code.value == 0
        assert wire.ask("metadata", 12, topics=[]).controller_id == 1


def test_users_made_at_the_leader_may_log_in_at_the_follower_and_unmade_ones_may_not(both: Pair) -> None:
    key = ("SCRAM-SHA-256", "carol")

    def may(credential: Credential | None) -> str:
        both.one.call(lambda: both.one.inside.store.commit([change(key, credential)]))
        until(
            lambda: both.two.call(lambda: key in both.two.inside_follower.users.credentials) == (credential is not None)
        )
        with Wire(both.two.bootstrap) as wire:
            return log_in_by_scram(wire, "SCRAM-SHA-256", "carol", "pw")

    assert may(Credential.of_password("SCRAM-SHA-256", "pw")) == "none"
    assert may(None) == "sasl_authentication_failed"


def test_a_client_that_knows_the_follower_only_gets_a_producers_id_over_the_link(both: Pair) -> None:
    with Wire(both.two.bootstrap) as wire:
        shake(wire)
        say(wire, plain("alice", "secret"))
        given = wire.ask("init_producer_id", 4, transactional_id=None, transaction_timeout=1000)
        assert (given.error_code.value, given.producer_id >= 0) == (0, True)


def test_the_promoted_one_is_not_heard_by_an_old_leader_that_it_cannot_log_in_at(
    both: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenure, "OVER_S", 0.3)
    us = KnownFollower(both.two.bootstrap, "1" * 32).name()
    for access in (replace(LOGIN, password="wrong"), LinkAccess("alice", "secret")):
        assert asyncio.run(shut_out(both.one.bootstrap, 2, us, 9, access)) is False
        assert both.one.leads


@pytest.mark.parametrize(
    ("access", "says"),
    [
        (Access(users=USERS), "--link-login"),
        (Access(link=LinkAccess("replica")), "name:password"),
        (Access(link=LinkAccess("replica", "hush", "PLAIN")), "--link-ca"),
        (Access(link=LinkAccess("replica", "hush", "GSSAPI")), "SCRAM-SHA-256"),
        (Access(link=LinkAccess(ca="/nowhere")), "No such file"),
        (Access(link=LinkAccess(ca=__file__)), "--link-ca"),
    ],
)
def test_a_link_that_cannot_be_is_refused_before_anything_listens(access: Access, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Broker(follow="127.0.0.1:1", access=access)


def test_a_login_comes_from_a_private_file_or_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "login"
    path.write_text("# as whom\nreplica:with:colons\n")
    path.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        login_of(str(path), {})
    path.chmod(0o600)
    assert login_of(str(path), {"WATERCLOCK_LINK_LOGIN": "x:y"}) == ("replica", "with:colons")
    assert login_of(None, {}) == (None, None)
    for text in ("a:b\nc:d\n", "", "noword\n", ":x\n", "x:\n"):
        path.write_text(text)
        with pytest.raises(UsageError, match="--link-login") as caught:
            login_of(str(path), {})
        assert "noword" not in str(caught.value)


@pytest.mark.long(seconds=5)
def test_a_secured_follower_is_promoted_by_the_command_and_no_secret_is_seen(
    tmp_path: Path, files: tuple[str, str]
) -> None:
    login = tmp_path / "login"
    login.write_text("replica:hush\n")
    login.chmod(0o600)
    link = LinkAccess("replica", "hush", "SCRAM-SHA-512", files[0])
    access = Access(users=USERS, tls_cert=files[0], tls_key=files[1], link=link)
    with pair(tmp_path, access=(access, access)) as both:
        words = ["promote", "--at", both.two.bootstrap]
        assert run(*words)[0] == 1
        secured = ["--link-login", str(login), "--link-ca", files[0]]
        assert run(*words, *secured) == (0, f"the broker at {both.two.bootstrap} leads\n")
        until(lambda: not both.one.leads)
        assert (
            run("promote", "--at", both.one.bootstrap, "--link-ca", files[0], WATERCLOCK_LINK_LOGIN="replica:hush")[0]
            == 0
        )


def run(*words: str, **environment: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "waterclock.cli", "broker", *words]
    done: Any = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment}
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


def test_a_topic_made_at_a_secured_leader_is_at_its_follower(both: Pair) -> None:
    with Wire(both.one.bootstrap) as wire:
        shake(wire)
        say(wire, plain("alice", "secret"))
        assert create(wire, "made").error_code.value == 0
    until(lambda: "made" in both.two.call(lambda: both.two.inside_follower.topics.by_name))
