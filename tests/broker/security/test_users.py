"""Users and how they log in: PLAIN, SCRAM, credentials made by clients, and what nobody may do before."""

from __future__ import annotations

import base64
import hashlib
import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.admin import ScramClient, log_in_by_scram, plain, say, shake
from tests.conformance.wire import Closed, Wire
from waterclock.broker import Access, Broker
from waterclock.broker.security import scram
from waterclock.broker.security.scram import Credential, Scram
from waterclock.clock import ManualClock

SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SECRET = "alice-secret"
USERS = Access(users=("# who may come in", f"alice:{SECRET}", "b,o=b:with:colons, and =", ""))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(access=USERS) as broker:
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        yield wire


def is_in(wire: Wire) -> bool:
    try:
        return wire.ask("metadata", 12, topics=[]).controller_id == 1
    except Closed:
        return False


def test_a_password_may_have_any_letter(wire: Wire) -> None:
    shake(wire)
    assert say(wire, plain("b,o=b", "with:colons, and =")).error_code.value == 0


@pytest.mark.parametrize(
    "token",
    [
        plain("alice", "wrong"),
        plain("alice", ""),
        plain("", SECRET),
        plain("nobody", SECRET),
        plain("alice", SECRET, acting_as="bob"),
        b"",
        b"alice",
        b"\0alice",
        plain("alice", SECRET) + b"\0",
        b"\0ali\xffce\0" + SECRET.encode(),
    ],
)
def test_anything_else_is_refused_and_closed(wire: Wire, token: bytes) -> None:
    shake(wire)
    assert say(wire, token).error_code.name == "sasl_authentication_failed"
    assert not is_in(wire)


def test_a_failure_is_answered_after_a_moment_and_nothing_is_read_meanwhile() -> None:
    clock = ManualClock()
    with Broker(access=USERS, clock=clock) as broker, Wire(broker.bootstrap) as wire:
        shake(wire)
        wire.send("sasl_authenticate", 2, auth_bytes=plain("alice", "wrong"))
        wire.send("sasl_authenticate", 2, auth_bytes=plain("alice", SECRET))
        assert wire.is_quiet()
        broker.advance_s(0.099)
        assert wire.is_quiet()
        broker.advance_s(0.001)
        assert wire.receive("sasl_authenticate", 2).error_code.name == "sasl_authentication_failed"
        with pytest.raises(Closed):
            wire.receive("sasl_authenticate", 2)


def test_requests_in_one_write_after_the_right_password_are_served(wire: Wire) -> None:
    shake(wire)
    frames = [wire.encoded("sasl_authenticate", 2, auth_bytes=plain("alice", SECRET)), wire.encoded("metadata", 12)]
    wire.send_bytes(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    assert [len(wire.receive_frame()) > 10 for _ in frames] == [True, True]


def asks_metadata(wire: Wire) -> Any:
    return wire.ask("metadata", 12, topics=[])


def asks_versions(wire: Wire) -> Any:
    return wire.ask("api_versions", 3, client_software_name="x", client_software_version="1")


@pytest.mark.parametrize(
    "deeds",
    [
        [asks_metadata],
        [asks_versions, asks_metadata],
        [shake, asks_metadata],
        [lambda wire: say(wire, plain("alice", SECRET))],
        [lambda wire: shake(wire, "PLAIN", 0), lambda wire: say(wire, plain("alice", SECRET))],
        [lambda wire: shake(wire, "GSSAPI"), shake],
    ],
)
def test_whoever_asks_for_something_else_first_is_closed(wire: Wire, deeds: list[Any]) -> None:
    for deed in deeds[:-1]:
        deed(wire)
    with pytest.raises(Closed):
        deeds[-1](wire)


def test_a_second_handshake_is_refused(wire: Wire) -> None:
    shake(wire)
    assert shake(wire).error_code.name == "illegal_sasl_state"
    assert not is_in(wire)


def test_saying_it_twice_is_refused_and_changes_nothing(wire: Wire) -> None:
    shake(wire)
    say(wire, plain("alice", SECRET))
    assert say(wire, plain("alice", SECRET)).error_code.name == "illegal_sasl_state"
    assert shake(wire).error_code.name == "illegal_sasl_state"
    assert is_in(wire)


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_scram_lets_in_who_knows_the_password(broker: Broker, mechanism: str) -> None:
    for name, password, then in (
        ("alice", SECRET, "none"),
        ("b=2Co=3Db", "with:colons, and =", "none"),
        ("alice", "wrong", "sasl_authentication_failed"),
        ("nobody", SECRET, "sasl_authentication_failed"),
    ):
        with Wire(broker.bootstrap) as wire:
            assert log_in_by_scram(wire, mechanism, name, password) == then
            assert is_in(wire) == (then == "none")


def test_the_example_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    pencil = Credential.of("SCRAM-SHA-256", salted, salt, 4096)
    monkeypatch.setattr(scram.secrets, "token_urlsafe", lambda size: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    exchange = Scram("SCRAM-SHA-256", {"user": pencil}.get)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    first = exchange.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    last = exchange.step(f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode())
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.user == "user"


@pytest.mark.parametrize(
    "first", [b"garbage", b"", b"p=tls-unique,,n=alice,r=a", b"n,a=bob,n=alice,r=a", b"n,,m=x,n=alice,r=a", b"\xff"]
)
def test_scram_refuses_what_it_cannot_do(wire: Wire, first: bytes) -> None:
    shake(wire, SCRAMS[0])
    assert say(wire, first).error_code.name == "sasl_authentication_failed"


@pytest.mark.parametrize("nonce", ["fyko", "other"])
def test_a_proof_over_another_nonce_is_refused(wire: Wire, nonce: str) -> None:
    client = ScramClient(SCRAMS[0], "alice", SECRET)
    shake(wire, SCRAMS[0])
    answer = say(wire, client.prove(say(wire, client.start()).auth_bytes, nonce))
    assert answer.error_code.name == "sasl_authentication_failed"


def test_the_last_message_must_repeat_the_header_of_the_first(wire: Wire) -> None:
    """Otherwise somebody between the two could take a channel binding out of it unseen."""
    client = ScramClient(SCRAMS[0], "alice", SECRET)
    shake(wire, SCRAMS[0])
    server = say(wire, client.start().replace(b"n,,", b"y,,")).auth_bytes
    assert say(wire, client.prove(server)).error_code.name == "sasl_authentication_failed"


def test_an_unknown_name_gets_the_same_salt_each_time(broker: Broker) -> None:
    salts = set()
    for _ in range(3):
        with Wire(broker.bootstrap) as wire:
            shake(wire, SCRAMS[0])
            salts.add(say(wire, b"n,,n=nobody,r=a").auth_bytes.split(b",")[1])
    assert len(salts) == 1


def upsertion(name: str, password: str, /, **fields: Any) -> dict[str, Any]:
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), b"12345678", 4096)
    return {"name": name, "mechanism": 1, "iterations": 4096, "salt": b"12345678", "salted_password": salted, **fields}


def altered(wire: Wire, *upsertions: dict[str, Any], deletions: tuple[dict[str, Any], ...] = ()) -> dict[str, str]:
    answer = wire.ask("alter_user_scram_credentials", 0, deletions=list(deletions), upsertions=list(upsertions))
    return {row.user: row.error_code.name for row in answer.results}


def test_a_user_made_by_a_client_logs_in_until_it_is_taken_away_and_after_a_restart(tmp_path: Path) -> None:
    with Broker(tmp_path, access=USERS) as broker, Wire(broker.bootstrap) as wire:
        assert log_in_by_scram(wire, SCRAMS[1], "alice", SECRET) == "none"
        assert altered(wire, upsertion("carol", "pw")) == {"carol": "none"}
    with Broker(tmp_path, access=USERS) as broker:
        with Wire(broker.bootstrap) as wire:
            assert log_in_by_scram(wire, SCRAMS[0], "carol", "pw") == "none"
            assert altered(wire, deletions=({"name": "carol", "mechanism": 1},)) == {"carol": "none"}
        with Wire(broker.bootstrap) as wire:
            assert log_in_by_scram(wire, SCRAMS[0], "carol", "pw") == "sasl_authentication_failed"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"iterations": 4095}, "unacceptable_credential"),
        ({"iterations": 16_385}, "unacceptable_credential"),
        ({"mechanism": 0}, "unsupported_sasl_mechanism"),
        ({"name": ""}, "unacceptable_credential"),
        ({"salted_password": b""}, "unacceptable_credential"),
    ],
)
def test_a_credential_that_cannot_be_is_refused_without_the_others(fields: dict[str, Any], error: str) -> None:
    with Broker() as broker, Wire(broker.bootstrap) as wire:
        bad = upsertion("bad", "pw", **fields)
        assert altered(wire, bad, upsertion("good", "pw")) == {bad["name"]: error, "good": "none"}
        reply = wire.ask("describe_user_scram_credentials", 0, users=None).results
        assert [(row.user, row.credential_infos[0].iterations) for row in reply] == [("good", 4096)]


def test_a_user_of_the_file_is_not_changed_by_clients(wire: Wire) -> None:
    log_in_by_scram(wire, SCRAMS[0], "alice", SECRET)
    assert altered(wire, upsertion("alice", "mine now")) == {"alice": "unacceptable_credential"}


def test_the_same_user_twice_and_a_user_nobody_knows() -> None:
    with Broker() as broker, Wire(broker.bootstrap) as wire:
        gone = {"name": "a", "mechanism": 1}
        assert altered(wire, upsertion("a", "pw"), upsertion("a", "pw")) == {"a": "duplicate_resource"}
        assert altered(wire, upsertion("a", "pw"), deletions=(gone,)) == {"a": "resource_not_found"}
        assert altered(wire, deletions=(gone,)) == {"a": "resource_not_found"}
        rows = wire.ask(
            "describe_user_scram_credentials", 0, users=[{"name": "a"}, {"name": "b"}, {"name": "b"}]
        ).results
        assert [row.error_code.name for row in rows] == ["resource_not_found", "duplicate_resource"]


def test_no_password_lies_on_the_disk_or_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), Broker(tmp_path, access=USERS) as broker:
        for deed in (
            lambda wire: say(wire, plain("alice", "alice-mistaken")),
            lambda wire: say(wire, plain("alice", SECRET)),
            lambda wire: [say(wire, plain("alice", SECRET)), altered(wire, upsertion("carol", "carols-own"))],
            lambda wire: wire.send_frame(plain("alice", "alice-mistaken")),
        ):
            with Wire(broker.bootstrap) as wire:
                shake(wire)
                deed(wire)
    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()) + caplog.text.encode()
    assert [word for word in (SECRET, "alice-mistaken", "carols-own") if word.encode() in everything] == []
    assert (tmp_path / "store.log").stat().st_mode & 0o077 == 0


def test_what_goes_wrong_on_the_way_in_is_logged_without_its_text(
    broker: Broker, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    def stumble(connection: Any, data: memoryview) -> None:
        raise ValueError(f"cannot read {bytes(data)!r}")

    shake(wire)
    broker.call(lambda: setattr(broker.inside.sasl, "serve", stumble))
    with pytest.raises(Closed):
        say(wire, plain("alice", SECRET))
    assert "ValueError on the way in" in caplog.text
    assert SECRET not in caplog.text
