"""Names and passwords: SASL PLAIN and SCRAM on the guarded listener, and what an open one says to them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.admin import log_in_by_scram, plain, say, shake
from tests.conformance.wire import Closed, Wire
from waterclock.bench.servers.server import USERS, Server

ALICE = USERS["alice"]


@pytest.fixture
def guarded(server: Server) -> Iterator[Wire]:
    """A connection to the listener that asks who is there."""
    if server.guarded is None:
        pytest.skip("this broker was started without a listener that asks for a password")
    with Wire(server.guarded) as wire:
        yield wire


def is_closed(wire: Wire) -> bool:
    try:
        wire.ask("metadata", 12, topics=[])
    except (Closed, OSError):
        return True
    return False


@pytest.mark.parametrize("version", range(3))
def test_the_right_password_opens_the_door(guarded: Wire, version: int) -> None:
    assert shake(guarded).error_code.name == "none"
    assert say(guarded, plain("alice", ALICE), version).error_code.name == "none"
    assert guarded.ask("metadata", 12, topics=[]).topics == ()


def test_a_wrong_password_is_refused_and_the_connection_closed(guarded: Wire) -> None:
    shake(guarded)
    answer = say(guarded, plain("alice", "wrong"))
    assert answer.error_code.name == "sasl_authentication_failed"
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert is_closed(guarded)


def test_an_unknown_name_is_refused_in_the_same_words(guarded: Wire) -> None:
    shake(guarded)
    answer = say(guarded, plain("nobody", ALICE))
    assert answer.error_message == "Authentication failed: Invalid username or password"


def test_nobody_acts_for_another(guarded: Wire) -> None:
    shake(guarded)
    assert say(guarded, plain("alice", ALICE, "bob")).error_code.name == "sasl_authentication_failed"


@pytest.mark.parametrize("data", [b"", b"alice", b"\0alice", b"\0\0", b"\0alice\0" + ALICE.encode() + b"\0more"])
def test_words_that_are_no_password_are_refused(guarded: Wire, data: bytes) -> None:
    shake(guarded)
    assert say(guarded, data).error_code.name == "sasl_authentication_failed"
    assert is_closed(guarded)


def test_a_mechanism_nobody_knows_is_refused_with_those_that_are_known(guarded: Wire) -> None:
    answer = shake(guarded, "MAGIC")
    assert answer.error_code.name == "unsupported_sasl_mechanism"
    assert set(answer.mechanisms) == {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert is_closed(guarded)


def test_before_the_password_versions_are_told(guarded: Wire) -> None:
    reply = {k.api_key for k in guarded.ask("api_versions", 2).api_keys}
    assert {17, 18, 36} <= reply
    assert shake(guarded).error_code.name == "none"


@pytest.mark.parametrize(("api", "version"), [("metadata", 12), ("produce", 9), ("sasl_authenticate", 2)])
def test_before_the_handshake_nothing_else_is_answered(guarded: Wire, api: str, version: int) -> None:
    guarded.send(api, version, **({"acks": -1} if api == "produce" else {}))
    with pytest.raises(Closed):
        guarded.receive(api, version)


def test_between_handshake_and_password_nothing_else_is_answered(guarded: Wire) -> None:
    # Apache Kafka answers with an error in that API's form, and closes behind it.
    shake(guarded)
    assert is_closed(guarded) or is_closed(guarded)


def test_after_the_handshake_of_old_the_tokens_come_bare(guarded: Wire) -> None:
    # Version 0: no SaslAuthenticate around them, only a size in front; success is an empty token.
    shake(guarded, version=0)
    guarded.send_frame(plain("alice", ALICE))
    assert guarded.receive_frame() == b""
    assert guarded.ask("metadata", 12, topics=[]).topics == ()


def test_a_wrong_password_after_the_handshake_of_old_closes_without_a_word(guarded: Wire) -> None:
    shake(guarded, version=0)
    guarded.send_frame(plain("alice", "wrong"))
    with pytest.raises(Closed):
        guarded.receive_frame()


def test_a_session_lasts_for_ever_unless_a_setting_bounds_it(guarded: Wire) -> None:
    # connections.max.reauth.ms is 0
    shake(guarded)
    assert say(guarded, plain("alice", ALICE)).session_lifetime.total_seconds() == 0


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_opens_the_door_without_telling_the_password(guarded: Wire, mechanism: str) -> None:
    assert log_in_by_scram(guarded, mechanism, "alice", ALICE) == "none"
    assert guarded.ask("metadata", 12, topics=[]).topics == ()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_refuses_a_wrong_password(guarded: Wire, mechanism: str) -> None:
    assert log_in_by_scram(guarded, mechanism, "alice", "wrong") == "sasl_authentication_failed"
    assert is_closed(guarded)


def test_scram_refuses_an_unknown_name(guarded: Wire) -> None:
    assert log_in_by_scram(guarded, "SCRAM-SHA-256", "nobody", "x") == "sasl_authentication_failed"


def test_an_open_listener_knows_no_handshake(wire: Wire) -> None:
    answer = shake(wire)
    assert (answer.error_code.name, wire.ask("metadata", 12, topics=[]).topics) == ("illegal_sasl_state", ())


def test_an_open_listener_knows_no_password(wire: Wire) -> None:
    answer = say(wire, plain("alice", ALICE))
    assert answer.error_code.name == "illegal_sasl_state"
