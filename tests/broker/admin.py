"""Sentences for the tests of the admin and security rooms, and of conformance: settings changed, users logging in.

A raw connection is `tests.conformance.wire.Wire`, with kio's names; brokers run inside of the test's process.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

from tests.conformance.wire import Wire

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def create(wire: Wire, name: str, version: int = 7, **fields: Any) -> Any:
    """CreateTopics of one topic; its row of the answer."""
    validate_only = fields.pop("validate_only", False)
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, **fields}
    topic["configs"] = [{"name": key, "value": value} for key, value in fields.get("configs", {}).items()]
    answer = wire.ask("create_topics", version, topics=[topic], timeout=5000, validate_only=validate_only)
    return answer.topics[0]


def described(wire: Wire, kind: int, name: str, *keys: str, version: int = 4, **fields: Any) -> Any:
    """DescribeConfigs of one resource; its row of the answer."""
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    return wire.ask("describe_configs", version, resources=[asked], **fields).results[0]


def setting(wire: Wire, kind: int, name: str, key: str) -> tuple[str, int]:
    """Value and source of one setting."""
    row = described(wire, kind, name, key).configs[0]
    return row.value, row.config_source


def change(wire: Wire, kind: int, name: str, *deeds: tuple[str, int, str | None], **fields: Any) -> str:
    """IncrementalAlterConfigs of one resource; the name of the error."""
    configs = [{"name": key, "config_operation": deed, "value": value} for key, deed, value in deeds]
    asked = {"resource_type": kind, "resource_name": name, "configs": configs}
    return str(wire.ask("incremental_alter_configs", 1, resources=[asked], **fields).responses[0].error_code.name)


def shake(wire: Wire, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return wire.ask("sasl_handshake", version, mechanism=mechanism)


def say(wire: Wire, data: bytes, version: int = 2) -> Any:
    """SaslAuthenticate."""
    return wire.ask("sasl_authenticate", version, auth_bytes=data)


def plain(name: str, password: str, acting_as: str = "") -> bytes:
    return f"{acting_as}\0{name}\0{password}".encode()


class ScramClient:
    """A client's side of SCRAM."""

    def __init__(self, mechanism: str, name: str, password: str) -> None:
        self._hash, self._password = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism], password
        self.first = f"n={name},r=fyko"

    def start(self) -> bytes:
        return b"n,," + self.first.encode()

    def prove(self, server: bytes, nonce: str | None = None) -> bytes:
        """The second message; with `nonce` another than the server's."""
        parts = dict(part.split("=", 1) for part in server.decode().split(","))
        assert parts["r"].startswith("fyko")
        assert int(parts["i"]) >= 4096
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
        key = hmac.digest(salted, b"Client Key", self._hash)
        final = f"c=biws,r={nonce or parts['r']}"
        said = f"{self.first},{server.decode()},{final}".encode()
        signature = hmac.digest(hashlib.new(self._hash, key).digest(), said, self._hash)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self.signature = b"v=" + base64.b64encode(hmac.digest(server_key, said, self._hash))
        return f"{final},p={base64.b64encode(proof).decode()}".encode()


def log_in_by_scram(wire: Wire, mechanism: str, name: str, password: str) -> str:
    """A whole exchange; the name of the error at its end. The server's signature is checked."""
    client = ScramClient(mechanism, name, password)
    shake(wire, mechanism)
    answer = say(wire, client.start())
    if answer.error_code.value == 0:
        answer = say(wire, client.prove(answer.auth_bytes))
        assert answer.error_code.value != 0 or answer.auth_bytes == client.signature
    return str(answer.error_code.name)
