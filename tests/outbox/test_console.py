"""As a new user would: a relay with an outbox and a console is started. A message of a database's transaction is seen in
the strip, in the list and in the wheel, comes down the levels, and leaves; one that is rolled back is never seen."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.browser import chromium, window
from tests.outbox.kills import delivered
from tests.outbox.taking import PostgresShop, until
from waterclock.relay import Delays

pytestmark = [pytest.mark.postgres, pytest.mark.browser]
COUNT = 30  # some of them are always in the finest level, once the first is due
WATCHED = """() => {
    window.levels = [], window.ids = new Set(), window.cells = 0;
    const look = () => {
        levels.push(document.querySelector('#dial').dataset.levels);
        for (const [id] of document.querySelector('main').innerText.matchAll(/order-\\d+/g)) ids.add(id);
        for (const cell of document.querySelectorAll('[data-pending]')) cells = Math.max(cells, cell.dataset.pending);
    };
    new MutationObserver(look).observe(document.body, {subtree: true, childList: true, attributeFilter: ['data-levels']});
}"""


@contextmanager
def relay(folder: Path, url: str) -> Iterator[tuple[str, str]]:
    """`waterclock relay --embedded`: where its Kafka is, and its page."""
    said, told = folder / "stdout.txt", folder / "stderr.txt"
    options = ["--embedded", str(folder / "relay"), "--port", "0", "--outbox", url, "--console"]
    with said.open("w") as out, told.open("w") as err:
        process = subprocess.Popen([sys.executable, "-m", "waterclock.cli", "relay", *options], stdout=out, stderr=err)
    try:
        until(lambda: "relay ready" in said.read_text() or process.poll() is not None)
        ready = re.search(r"on (\S+), files in", said.read_text())
        page = re.search(r"console at (\S+)", told.read_text())
        assert ready is not None, told.read_text()
        assert page is not None, told.read_text()
        yield ready[1], page[1]
    finally:
        process.kill()
        process.wait(10)


def send(shop: PostgresShop, first: int, commits: bool) -> None:
    """So many messages in one transaction, due from eight seconds on, a tenth of a second apart."""
    with shop.connected() as db:
        for number in range(first, first + COUNT):
            due = f"{8_000 + 100 * (number - first)} ms"
            Delays().send("reminders", f"pay {number}", delay=due, id=f"order-{number}", key="orders", db=db)
        db.commit() if commits else db.rollback()


def taken(shop: PostgresShop) -> bool:
    """Whether somebody makes the table, and takes what is in it."""
    with shop.connected() as db:
        slots = "select count(*) from pg_replication_slots where database = current_database() and active"
        return bool(db.execute(slots).fetchone()[0])


def test_a_message_of_a_transaction_is_seen_until_it_leaves_and_one_rolled_back_never(
    postgres_shop: PostgresShop, tmp_path: Path
) -> None:
    with chromium() as browser, relay(tmp_path, postgres_shop.url) as (servers, url):
        page, wrong = window(browser, 1280)
        page.goto(url)
        page.locator("[data-panel=strip]").wait_for()
        until(lambda: taken(postgres_shop))
        page.evaluate(WATCHED)
        send(postgres_shop, 200, commits=False)
        send(postgres_shop, 100, commits=True)
        until(lambda: len(delivered(servers)) == COUNT)
        page.wait_for_selector("#dial[data-levels='[]']", state="attached")
        assert sorted(text for text, _, _ in delivered(servers)) == [f"pay {number}" for number in range(100, 130)]
        seen = [json.loads(levels) for levels in page.evaluate("window.levels")]
        held = [[sum(level.values()) for level in levels] for levels in seen]
        assert max(map(sum, held)) == page.evaluate("window.cells") == COUNT
        first = held.index([0, COUNT])  # in the second level, until its bucket's time comes
        assert any(levels and 0 < levels[0] < COUNT for levels in held[first:])
        above = [sum(levels[1:]) for levels in held[first:]]
        assert above == sorted(above, reverse=True)
        assert held[-1] == []
        listed = set(page.evaluate("[...window.ids]"))
        assert len(listed) >= 20  # so many are listed at once
        assert listed <= {f"order-{number}" for number in range(100, 130)}
        assert wrong == []
        page.close()
