"""Where a broker listens, and the files with its secrets: what cannot be safe is refused with a sentence. TLS."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.admin import create, plain, say, shake
from tests.broker.security.certificates import certificate
from tests.conformance.batches import batch
from tests.conformance.dialogue import Dialogue, produce_fields
from tests.conformance.wire import Closed, Wire
from waterclock.broker import Access, Broker
from waterclock.broker.security.access import users_of
from waterclock.broker.security.scram import Credential
from waterclock.errors import UsageError

MAIN = "import sys; from waterclock.cli import main; sys.exit(main())"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for 127.0.0.1 and its key."""
    return certificate(tmp_path_factory.mktemp("tls"))


class TlsWire(Wire):
    """A raw connection inside of TLS."""

    def __init__(self, bootstrap: str, cert: str) -> None:
        super().__init__(bootstrap)
        self._socket = ssl.create_default_context(cafile=cert).wrap_socket(self._socket, server_hostname="127.0.0.1")


@pytest.fixture
def broker(files: tuple[str, str]) -> Iterator[Broker]:
    with Broker(access=Access(users=("alice:secret",), tls_cert=files[0], tls_key=files[1])) as broker:
        yield broker


@pytest.fixture
def alice(broker: Broker, files: tuple[str, str]) -> Iterator[TlsWire]:
    """A connection inside of TLS that has logged in."""
    with TlsWire(broker.bootstrap, files[0]) as wire:
        shake(wire)
        say(wire, plain("alice", "secret"))
        yield wire


def test_users_log_in_inside_of_tls(broker: Broker, files: tuple[str, str]) -> None:
    with TlsWire(broker.bootstrap, files[0]) as wire:
        shake(wire)
        assert say(wire, plain("alice", "secret")).error_code.value == 0
        assert wire.ask("metadata", 12, topics=[]).controller_id == 1


def test_records_come_back_through_tls_as_they_went(alice: TlsWire) -> None:
    """Larger than a record of TLS, than the shared buffer, and than what a read from the file may be."""
    create(alice, "t", configs={"max.message.bytes": str(4 << 20)})
    for size in (10, 20_000, 300_000, 3_000_000):
        value = os.urandom(size)
        answer = Dialogue(alice).produce("t", batch(value))
        assert answer.error_code.value == 0
        found = Dialogue(alice).fetch("t", answer.base_offset, partition_max_bytes=4 << 20)
        assert value in found.partition.records


def test_the_end_of_a_large_request_and_the_next_one_in_a_record_are_both_read(alice: TlsWire) -> None:
    """The large one ends within a record: the rest is decrypted already, and the loop does not see it any more. The large
    one asks for no answer, so that no answer makes the connection look again."""
    create(alice, "t")
    large = alice.encoded("produce", 11, **produce_fields("t", batch(os.urandom(300_000)), acks=0))
    frames = [large, alice.encoded("metadata", 12, topics=[])]
    alice.send_bytes(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    assert alice.receive_frame()[:4] == frames[1][4:8]


def test_many_requests_in_one_record_are_answered_in_order(alice: TlsWire) -> None:
    frames = [alice.encoded("metadata", 12, topics=[]) for _ in range(2000)]
    alice.send_bytes(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    answer = [struct.unpack(">i", alice.receive_frame()[:4])[0] for _ in frames]
    assert answer == [struct.unpack_from(">i", frame, 4)[0] for frame in frames]


def test_a_client_without_tls_is_closed_and_others_go_on(broker: Broker, files: tuple[str, str]) -> None:
    with Wire(broker.bootstrap) as naked:
        naked.send("api_versions", 0)
        with pytest.raises((Closed, struct.error, AssertionError, MemoryError)):  # an alert of TLS, and the end
            naked.receive("api_versions", 0)
    test_users_log_in_inside_of_tls(broker, files)


def test_versions_of_tls_before_1_2_are_refused(broker: Broker, files: tuple[str, str]) -> None:
    context = ssl.create_default_context(cafile=files[0])
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    host, port = broker.bootstrap.split(":")
    with closing(context.wrap_socket(socket.create_connection((host, int(port))), server_hostname=host)) as old:
        assert old.version() == "TLSv1.2"
    made = Access(tls_cert=files[0], tls_key=files[1]).context()
    assert made is not None
    assert made.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_client_that_stops_in_its_handshake_keeps_nobody_waiting(broker: Broker, files: tuple[str, str]) -> None:
    host, port = broker.bootstrap.split(":")
    with closing(socket.create_connection((host, int(port)))) as mute:
        mute.sendall(b"\x16\x03\x01")
        test_users_log_in_inside_of_tls(broker, files)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_logs_in_through_tls(broker: Broker, files: tuple[str, str], mechanism: str) -> None:
    admin = pytest.importorskip("confluent_kafka.admin")
    client = admin.AdminClient(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": files[0],
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": "secret",
        }
    )
    assert client.list_topics(timeout=20).cluster_id


@pytest.mark.parametrize(
    ("access", "answer"),
    [
        (Access(), "--users"),
        (Access(users=("a:b",)), "--tls-cert"),
        (Access(tls_cert="c", tls_key=__file__), "others"),
        (Access(tls_cert="c"), "--tls-key"),
        (Access(users=("a:b", "a:c")), "twice"),
        (Access(users=("a:b", "a:SCRAM-SHA-256$4096:AAAA$" + "A" * 43 + "=:" + "A" * 43 + "=")), "twice"),
        (Access(tls_key="k"), "--tls-cert"),
    ],
)
def test_nothing_listens_beyond_this_machine_without_users_and_tls(access: Access, answer: str) -> None:
    with pytest.raises(UsageError, match=answer):
        Broker(host="192.0.2.1", access=access)


def test_it_may_be_said_that_this_is_meant() -> None:
    Broker(host="192.0.2.1", access=Access(insecure_remote=True))


def test_all_addresses_need_one_that_clients_can_be_told() -> None:
    with pytest.raises(UsageError, match="--advertise"):
        Broker(host="0.0.0.0", access=Access(insecure_remote=True))
    with Broker(host="0.0.0.0", access=Access(insecure_remote=True, advertise="127.0.0.1")) as broker:
        with Wire(broker.bootstrap.replace("0.0.0.0", "127.0.0.1")) as wire:
            row = wire.ask("metadata", 12, topics=[]).brokers[0]
        assert f"{row.host}:{row.port}" == broker.bootstrap.replace("0.0.0.0", "127.0.0.1")


@pytest.mark.parametrize(
    ("advertise", "answer"),
    [
        (None, ("h", 1)),
        ("name", ("name", 1)),
        ("name:9", ("name", 9)),
        ("::1", ("::1", 1)),
        ("[::1]:9", ("::1", 9)),
        ("name:", None),
        ("name:99999", None),
        (":9", None),
    ],
)
def test_what_clients_are_told_to_connect_to(advertise: str | None, answer: tuple[str, int] | None) -> None:
    access = Access(advertise=advertise)
    if answer is None:
        with pytest.raises(UsageError, match="HOST:PORT"):
            access.advertised("h", 1)
    else:
        assert access.advertised("h", 1) == answer


def test_a_file_of_users_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("alice:secret\n")
    path.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        users_of(str(path), {})
    path.chmod(0o600)
    assert users_of(str(path), {"WATERCLOCK_USERS": "bob:x"}) == ("alice:secret",)
    assert users_of(None, {"WATERCLOCK_USERS": "bob:x\ncarol:y"}) == ("bob:x", "carol:y")
    path.write_text("# nobody\n\n")
    with pytest.raises(UsageError, match="names nobody"):
        users_of(str(path), {})
    with pytest.raises(UsageError, match="No such file"):
        users_of(str(path) + "x", {})


@pytest.mark.parametrize(
    "line", ["secretword", "alice:", ":secretword", "alice:SCRAM-SHA-256$secretword", "alice:SCRAM-SHA-1$1:a$b:c"]
)
def test_a_line_that_is_none_is_named_by_its_number_and_not_told(line: str) -> None:
    with pytest.raises(UsageError, match="line 2") as caught:
        Broker(access=Access(users=("bob:x", line)))
    assert "secretword" not in str(caught.value)


def test_a_user_may_stand_in_the_file_with_keys_only() -> None:
    lines = [f"alice:{Credential.of_password(m, 'pw').text(m)}" for m in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
    with Broker(access=Access(users=tuple(lines))) as broker:
        from tests.broker.admin import log_in_by_scram

        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            with Wire(broker.bootstrap) as wire:
                assert log_in_by_scram(wire, mechanism, "alice", "pw") == "none"
        with Wire(broker.bootstrap) as wire:
            shake(wire)
            assert say(wire, plain("alice", "pw")).error_code.name == "sasl_authentication_failed"


def test_no_secret_can_be_seen_from_outside_of_the_process(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("alice:very-secret\n")
    path.chmod(0o600)
    command = [sys.executable, "-c", MAIN, "broker", "--port", "0", "--users", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "ready on" in process.stdout.readline()
        seen = Path(f"/proc/{process.pid}/cmdline").read_text() + Path(f"/proc/{process.pid}/environ").read_text()
        process.terminate()
    assert "very-secret" not in seen


def test_the_command_refuses_with_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAIN, "broker", "--port", "0", "--host", "0.0.0.0", "--advertise", "x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--insecure-remote" in done.stderr
