"""What `waterclock relay` says of its options for an outbox, and what a relay says that does not take the rows."""

from __future__ import annotations

import pytest

from tests.outbox.taking import PostgresShop, Taking, until
from waterclock import cli
from waterclock.outbox import taker
from waterclock.testing import Broker


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--outbox-poll", "1s"], "say of which one, --outbox URL"),
        (["--outbox", "mysql://root@127.0.0.1/"], "name the database too"),
        (["--outbox", "sqlite://x"], "is no address of a database"),
        (["--outbox", "mysql://root@127.0.0.1/shop", "--outbox-poll", "soon"], "write such as --outbox-poll 1s"),
    ],
)
def test_a_wrong_option_is_refused_with_a_right_one(
    options: list[str], said: str, broker: Broker, tmp_path: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--bootstrap", broker.bootstrap, "--topic", "options", "--folder", str(tmp_path)]
    assert cli.main(["relay", *where, *options]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.postgres
def test_a_relay_whose_partition_another_one_has_says_who_takes_the_rows(
    postgres_shop: PostgresShop, broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(taker, "SAID_AFTER_S", 0)
    taking = Taking(postgres_shop, broker.bootstrap, "elsewhere")
    with taking.taker() as made:
        made.owns(False)
        until(lambda: made.owns(False) is None and "elsewhere-0 belongs to another relay" in caplog.text)
