"""A MySQL server of the tests' own. Debian's stable releases have MariaDB in its place, so its packages come from sid.

They come once, by apt-get with folders of its own, which installs nothing, into a cache outside of the clone: 70 MB over
the net, 350 MB in the end, a quarter of a minute. Their libraries are sid's too, so sid's loader runs the server.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cdc.mariadb import MariaServer, started

HOME = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "waterclock-tests" / "mysql"
_OPTIONS = [
    "--user=root",
    "--secure-file-priv=",
    "--mysqlx=OFF",
    "--innodb-flush-method=nosync",
    "--innodb-doublewrite=OFF",
    "--innodb-redo-log-capacity=8M",
    "--log-error-verbosity=1",
]
_RUNNING = [
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--log-bin=binlog",
    "--server-id=1",
    "--binlog-row-metadata=FULL",
    "--gtid-mode=ON",
    "--enforce-gtid-consistency=ON",
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=2",
    "--sync-binlog=0",
    "--cte-max-recursion-depth=1000000",
    "--max-allowed-packet=64M",
    "--plugin-load-add=semisync_source.so",
]
_ANYWHERE = "create user root@'%' identified by ''; grant all on *.* to root@'%' with grant option;"


class MySqlOfSid(MariaServer):
    """`options` are the server's own, and win over the others."""

    executed = "gtid_executed"

    def install(self) -> None:
        self._temporary.mkdir()
        shutil.copytree(HOME / "data", self.folder, dirs_exist_ok=True)

    def numbers(self, first: int, last: int) -> str:
        rows = f"select {first} union all select seq + 1 from n where seq < {last}"
        return f"(with recursive n(seq) as ({rows}) select seq from n) numbers"

    def command(self) -> list[str]:
        return [*_mysqld(HOME), *_OPTIONS, *_RUNNING]


def _mysqld(home: Path) -> list[str]:
    """What runs the server, up to its first option."""
    (loader,) = home.glob("sid/usr/lib/*/ld-linux-*.so.*")
    options = ["--no-defaults", f"--basedir={home}/sid/usr", f"--plugin-dir={home}/sid/usr/lib/mysql/plugin"]
    return [str(loader), "--library-path", str(loader.parent), f"{home}/sid/usr/sbin/mysqld", *options]


@contextmanager
def running_server(folder: Path, *options: str) -> Iterator[MySqlOfSid]:
    """A server in `folder`; the test is skipped where there is none to be had."""
    _fetch()
    server = MySqlOfSid(folder, *options)
    with started(server):
        yield server


def _fetch() -> None:
    """See above; who comes while another one fetches waits."""
    if shutil.which("apt-get") is None:
        pytest.skip("no MySQL on this machine: it is taken from Debian sid's packages, and here is no apt-get")
    HOME.parent.mkdir(parents=True, exist_ok=True)
    with (HOME.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if HOME.exists():
            return
        with tempfile.TemporaryDirectory(dir=HOME.parent) as made:
            home = Path(made, "mysql")
            home.mkdir()
            for package in _packages(Path(made)):
                _run("dpkg", "-x", str(package), str(home / "sid"))
            prepared = ["--initialize-insecure", f"--datadir={home}/data", f"--init-file={made}/anywhere.sql"]
            Path(made, "anywhere.sql").write_text(_ANYWHERE)
            _run(*_mysqld(home), *_OPTIONS, "--skip-log-bin", *prepared)
            with suppress(FileNotFoundError):  # it names the server, and each copy is another one
                (home / "data" / "auto.cnf").unlink()
            home.rename(HOME)


def _packages(made: Path) -> list[Path]:
    """MySQL's and those of all that it needs, from where this machine has its own."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main"]
    found = [uri for uri in _run(*asked).decode().split() if uri.rstrip("/").endswith("/debian")]
    if not found:
        pytest.skip(
            "no MySQL on this machine: it is taken from Debian sid's packages, and apt has no archive of Debian"
        )
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (made / "sources").write_text(f"deb [signed-by={keys}] {found[0]} sid main\n")
    for folder in ("lists/partial", "archives/partial"):
        (made / folder).mkdir(parents=True)
    (made / "status").touch()  # of a machine that has nothing: so all that it needs comes
    places = {
        "Etc::SourceList": "sources",
        "Etc::SourceParts": "none",
        "State": "",
        "State::Lists": "lists",
        "State::Status": "status",
        "Cache": "",
        "Cache::Archives": "archives",
    }
    settings = [f"Dir::{name}={made / place}" for name, place in places.items()]
    settings += ["APT::Sandbox::User=root", "APT::Install-Recommends=false", "Acquire::Languages=none"]
    settings += ["Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false", "Acquire::http::Timeout=20"]
    settings += ["Acquire::Retries=1", "Debug::NoLocking=true"]
    get = ["apt-get", "-qq", *[part for setting in settings for part in ("-o", setting)]]
    try:
        _run(*get, "-o", "APT::Update::Error-Mode=any", "update")
        _run(*get, "--yes", "--download-only", "install", "mysql-server-core")
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (error.stderr or b"").decode(errors="replace").strip()[-300:]
        pytest.skip(f"no MySQL on this machine: apt-get does not bring Debian sid's ({said or error})")
    return [package for package in (made / "archives").glob("*.deb") if "perl" not in package.name]


def _run(*command: str) -> bytes:
    return subprocess.run(command, check=True, capture_output=True, timeout=300).stdout
