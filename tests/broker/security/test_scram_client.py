"""The client's side of SCRAM against the server's, and against servers that are none."""

from __future__ import annotations

import base64

import pytest

from waterclock.broker.security.scram import AccessDenied, Credential, Scram, ScramClient

BOTH = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def log_in(mechanism: str, user: str, password: str, right: str = "secret") -> str | None:
    """The user that the server has let in."""
    kept = Credential.of_password(mechanism, right)
    server, client = Scram(mechanism, lambda name: kept), ScramClient(mechanism, user, password)
    client.check(server.step(client.final(server.step(client.first()))))
    return server.user


@pytest.mark.parametrize("mechanism", BOTH)
@pytest.mark.parametrize("user", ["replica", "a,b=c", "é"])
def test_each_shows_the_other_that_it_knows_the_password(mechanism: str, user: str) -> None:
    assert log_in(mechanism, user, "secret") == user


@pytest.mark.parametrize("mechanism", BOTH)
def test_another_password_is_denied_by_the_server(mechanism: str) -> None:
    with pytest.raises(AccessDenied):
        log_in(mechanism, "replica", "another")


def test_the_exchange_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_urlsafe", lambda size: "rOprNGfwEbeRWgbNEkqO")
    client = ScramClient("SCRAM-SHA-256", "user", "pencil")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    proof = client.final(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert proof == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    client.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "answer",
    [
        "r={nonce},s=c2FsdA==,i=4096",  # nothing of the server's own
        "r=another,s=c2FsdA==,i=4096",
        "r={nonce}x,s=c2FsdA==,i=1",  # a password could be guessed from the proof
        "r={nonce}x,s=c2FsdA==,i=9999999",
        "r={nonce}x,s=!,i=4096",
        "e=other-error",
        "",
    ],
)
def test_a_server_that_says_anything_else_gets_no_proof(answer: str) -> None:
    client = ScramClient("SCRAM-SHA-256", "replica", "secret")
    nonce = client.first().decode().rpartition("r=")[2]
    with pytest.raises(AccessDenied):
        client.final(answer.format(nonce=nonce).encode())


@pytest.mark.parametrize("last", [b"", b"v=", b"e=other-error", b"v=" + base64.b64encode(bytes(32))])
def test_a_server_that_does_not_know_the_user_is_not_believed(last: bytes) -> None:
    client = ScramClient("SCRAM-SHA-256", "replica", "secret")
    nonce = client.first().decode().rpartition("r=")[2]
    client.final(f"r={nonce}x,s=c2FsdA==,i=4096".encode())
    with pytest.raises(AccessDenied, match="did not prove"):
        client.check(last)


def test_nobody_is_believed_before_anything_was_said() -> None:
    with pytest.raises(AccessDenied):
        ScramClient("SCRAM-SHA-256", "replica", "secret").check(b"v=")
