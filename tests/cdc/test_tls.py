"""A snapshot and the changes behind it through TLS, whose certificate is checked."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cdc.mariadb import running_server as maria_server
from tests.cdc.postgres import run
from tests.cdc.test_snapshot import came
from tests.postgres_server import running_server as postgres_server
from waterclock import cli
from waterclock.cdc import snapshot
from waterclock.testing import Broker


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One for 127.0.0.1, which nobody else has signed, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl on this machine")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate", folder / "key"
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *made, *files], check=True, capture_output=True)
    return certificate, key


@pytest.fixture
def maria(certificate: tuple[Path, Path], tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """The address of a database whose user may come by TLS only, and what asks for it."""
    options = [f"--ssl-cert={certificate[0]}", f"--ssl-key={certificate[1]}"]
    with maria_server(tmp_path / "maria", *options) as server:
        server.run("create database shop", "use shop", "create table item (id int primary key, v text)")
        server.run("use shop", "insert into item select seq, 'old' from seq_1_to_2000", "flush binary logs")
        server.run("create user reader require ssl", "grant all on *.* to reader", "purge binary logs before now()")
        yield f"mysql://reader@127.0.0.1:{server.port}/shop", ["--tls", "--from", "now", "--snapshot", "initial"]


@pytest.mark.mariadb
def test_a_snapshot_of_mariadb_comes_through_tls_with_a_certificate_that_is_checked(
    maria: tuple[str, list[str]],
    certificate: tuple[Path, Path],
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every certificate was taken: PyMySQL checks none if it is given no file of authorities."""
    monkeypatch.setattr(snapshot, "FIRST_ROWS", 300)
    to = ["--to", f"kafka://{broker.bootstrap}/tls", "--order", "global", "--once"]
    assert cli.main(["cdc", maria[0], *to, *maria[1]]) == 2
    assert "certificate verify failed" in capsys.readouterr().err
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    assert cli.main(["cdc", maria[0].replace("127.0.0.1", "localhost"), *to, *maria[1]]) == 2
    assert "certificate is not valid for 'localhost'" in capsys.readouterr().err
    assert cli.main(["cdc", maria[0], *to, *maria[1]]) == 0
    assert [each["data"]["id"] for each in came(broker, "tls")] == [*range(1, 2001)]


@pytest.mark.postgres
def test_a_snapshot_of_postgresql_and_large_changes_behind_it_come_through_tls(
    certificate: tuple[Path, Path], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    settings = {"wal_level": "logical", "listen_addresses": "127.0.0.1", "port": str(port)}
    with postgres_server(settings) as server:
        url = f"{server.url()}&port={port}"
        for file in certificate:
            there = server.folder / "data" / file.name
            there.write_bytes(file.read_bytes())
            there.chmod(0o600)
            if server._user:
                shutil.chown(there, server._user)
        run(url, "alter system set ssl_cert_file = 'certificate'", "alter system set ssl_key_file = 'key'")
        run(url, "alter system set ssl = on", "select pg_reload_conf()")
        hba = server.folder / "data" / "pg_hba.conf"
        hba.write_text("local all all trust\nhostssl all all 127.0.0.1/32 trust\n")
        run(url, "select pg_reload_conf()")
        run(url, "create table item (id int primary key, v text)")
        run(url, "insert into item select n, 'old' from generate_series(1, 2000) n")
        monkeypatch.setenv("PGSSLMODE", "verify-full")
        monkeypatch.setenv("PGSSLROOTCERT", str(certificate[0]))
        to = ["--to", f"kafka://{broker.bootstrap}/pgtls", "--order", "global", "--once"]
        command = ["cdc", f"postgres://postgres@127.0.0.1:{port}/postgres", *to]
        assert cli.main(command) == 0
        run(url, "update item set v = repeat(md5(id::text), 400)")
        assert cli.main(command) == 0
        monkeypatch.setenv("PGSSLROOTCERT", str(certificate[1].with_name("another")))
        assert cli.main(command) == 2
    found = came(broker, "pgtls")
    assert [each["data"]["id"] for each in found[:2000]] == [*range(1, 2001)]
    assert {(each["type"], len(each["data"]["v"])) for each in found[2000:]} == {("update", 12800)}
    assert len(found) == 4000


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
