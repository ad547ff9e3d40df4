"""What stands side by side on the pages "Coming from ...": before, by the other library, and after, by an outbox. Each of
these blocks runs as it stands, around names that the pages leave to the reader. All other blocks of these pages are run
by tests/test_how_to.py.

A crash between the commit and what follows it loses the message before; after, a rollback undoes both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tests.outbox.taking import MariaShop, Shop
from tests.samples import all_blocks
from waterclock.outbox.table import OutboxTable
from waterclock.relay import Delays

FOLDER: Final = Path(__file__).parents[2] / "docs" / "how-to"
PAGES: Final = ("from-celery", "from-polled-table", "from-apscheduler")
NOT_RUN: Final = "$ python bench/celery_eta.py"  # what it prints is bench/results/celery.txt


def plain(page: str) -> list[str]:
    """The blocks of a page that the page's own test does not run: those without a language."""
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    marked = {block.content for block in all_blocks(text)}
    blocks = [part.partition("\n") for part in text.split("```")[1::2]]
    return [content for head, _, content in blocks if not head.strip() and content not in marked]


BLOCKS: Final = {page: [each for each in plain(page) if NOT_RUN not in each] for page in PAGES}


@pytest.fixture
def ordered(shop: Shop) -> Shop:
    """A database with the tables of the pages."""
    OutboxTable(shop.url, "delays", "any").make()
    with shop.connected() as connection:
        for columns in ("orders (id int primary key)", "task (id serial, due_ms bigint, payload text)"):
            connection.cursor().execute(f"create table {columns}")
        connection.commit()
    return shop


def rows(shop: Shop, asked: str) -> list[tuple[Any, ...]]:
    with shop.connected() as connection, connection.cursor() as cursor:
        cursor.execute(asked)
        return list(cursor.fetchall())


def messages(shop: Shop) -> list[tuple[bytes, str]]:
    """What the outbox has: value and topic."""
    found = rows(shop, "select message_value, headers from waterclock_outbox order by number")
    return [(bytes(value), dict(json.loads(headers))["deliver-to"]) for value, headers in found]


def test_the_blocks_of_the_three_pages_are_these() -> None:
    assert {page: len(blocks) for page, blocks in BLOCKS.items()} == {
        "from-celery": 2, "from-polled-table": 1, "from-apscheduler": 2,
    }  # fmt: skip


def test_the_figures_of_celerys_page_are_those_that_were_measured() -> None:
    measured = (FOLDER.parents[1] / "bench" / "results" / "celery.txt").read_text(encoding="utf-8")
    text = (FOLDER / "from-celery.md").read_text(encoding="utf-8")
    shown = next(part for part in text.split("```") if NOT_RUN in part).splitlines()[2:]
    assert len(shown) == 2
    assert all(line in measured.splitlines() for line in shown)


def test_from_celery(ordered: Shop) -> None:
    celery = pytest.importorskip("celery", reason="celery is not installed")
    pytest.importorskip("django", reason="django is not installed")
    from django.db import transaction

    from tests.outbox.djangos import connected

    app = celery.Celery("shop", broker="memory://")

    @app.task(name="remind")  # type: ignore[untyped-decorator,unused-ignore]
    def remind(order: int) -> None:
        """Nobody runs it here."""

    def waiting() -> int:
        with app.connection() as there:
            return int(there.default_channel.queue_declare("celery", passive=True).message_count)

    before, after = BLOCKS["from-celery"]
    with connected(ordered) as connection, app.connection() as there:
        there.default_channel.queue_declare("celery")
        there.default_channel.queue_purge("celery")  # a queue in memory is the process's
        numbers = iter(range(17, 20))

        def save() -> None:
            order.id = next(numbers)
            connection.cursor().execute("INSERT INTO orders VALUES (%s)", [order.id])

        order = SimpleNamespace(save=save, id=0)
        names = {"transaction": transaction, "order": order, "remind": remind, "connection": connection}
        exec(before, {**names})
        assert (waiting(), messages(ordered)) == (1, [])
        exec(after, {**names, "delays": Delays(None)})
        with transaction.atomic():
            exec(after, {**names, "delays": Delays(None)})
            transaction.set_rollback(True)
    assert messages(ordered) == [(b"18", "reminders")]
    assert rows(ordered, "select id from orders") == [(17,), (18,)]


def test_from_a_polled_table(ordered: Shop) -> None:
    (before,) = BLOCKS["from-polled-table"]  # after it: order.py, which tests/test_how_to.py runs
    with ordered.connected() as db:
        exec(before, {"db": db, "cursor": db.cursor(), "due_ms": 1_900_000_000_000})
    assert rows(ordered, "select due_ms, payload from task") == [(1_900_000_000_000, "remind 17")]
    assert rows(ordered, "select id from orders") == [(17,)]


def test_from_apscheduler(ordered: Shop) -> None:
    background = pytest.importorskip("apscheduler.schedulers.background", reason="apscheduler is not installed")
    sqlalchemy = pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    from sqlalchemy.orm import DeclarativeBase, Session

    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"
        id = sqlalchemy.Column(sqlalchemy.Integer, primary_key=True)

    driver = "mysql+pymysql" if isinstance(ordered, MariaShop) else "postgresql+psycopg"
    engine = sqlalchemy.create_engine(f"{driver}://", creator=ordered.opened)
    before, after = BLOCKS["from-apscheduler"]
    scheduler, tomorrow = background.BackgroundScheduler(timezone=UTC), datetime.now(UTC) + timedelta(days=1)
    scheduler.start()

    def remind(order: int) -> None:
        """Nobody runs it here."""

    def ran(block: str, number: int, ends: Callable[[Any], object] = lambda session: None) -> None:
        with Session(engine) as session:
            names = {"session": session, "order": Order(id=number), "scheduler": scheduler, "remind": remind}
            ends(session)
            exec(block, {**names, "tomorrow": tomorrow, "delays": Delays(None)})

    try:
        ran(before, 17)
        assert [job.args for job in scheduler.get_jobs()] == [(17,)]
        ran(after, 18)

        def refuse(session: Any) -> None:
            session.execute(sqlalchemy.text("insert into orders values (19)"))

        with pytest.raises(sqlalchemy.exc.IntegrityError):
            ran(after, 19, refuse)
    finally:
        scheduler.shutdown(wait=False)
        engine.dispose()
    assert messages(ordered) == [(b"18", "reminders")]
    assert rows(ordered, "select id from orders") == [(17,), (18,)]
