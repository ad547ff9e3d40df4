"""The report of the main job, on a small run written out by hand: three fines, four batches, one copy.

Rule 1: what the page must say is written here as literals, never computed the way the report does.
Rule 2: drawing takes a second; a test that is not about pictures works with `plain_folder`, which has none.
"""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.browser import chromium
from tests.browser import window as made

pytest.importorskip("matplotlib", reason="the report draws with matplotlib")
from waterclock.examples.fines import picture, report
from waterclock.examples.fines.log import LogEvent

LOG = """
A1 2007-01-01 Create Fine
A1 2007-01-10 Insert Fine Notification
A1 2007-03-11 Add penalty
B2 2007-01-03 Create Fine
B2 2007-01-12 Insert Fine Notification
B2 2007-02-01 Payment
B2 2007-03-13 Add penalty
C3 2007-01-05 Create Fine
"""
# in order of arrival: B2's payment comes before its notification, and A1's first event a second time
REPLAY = """
A1 1 2007-01-01 Create Fine
C3 1 2007-01-05 Create Fine
B2 1 2007-01-03 Create Fine
A1 2 2007-01-10 Insert Fine Notification
A1 1 2007-01-01 Create Fine
B2 3 2007-02-01 Payment
B2 2 2007-01-12 Insert Fine Notification
"""
RESULTS = """
0 event A1 order 2007-01-01 1
0 event C3 order 2007-01-05 1
0 event B2 order 2007-01-03 1
1 event A1 order 2007-01-10 2
1 event B2 order 2007-01-12 2
1 met B2 unpaid 2007-03-13 -
1 event B2 order 2007-02-01 3
2 emit A1 Add_penalty 2007-03-11 -
2 expired A1 unpaid 2007-03-11 -
2 emit B2 Add_penalty 2007-03-13 -
"""
# what was read of the topic's only partition by the end of each batch; the last record is a heartbeat
BATCHES = (
    (0, 4, {"events": 4, "released": 4, "pending": 2, "records": 4}, None, 2.0),
    (1, 7, {"events": 3, "duplicates": 1, "reordered": 1, "pending": 1, "records": 3}, "2006-12-27", 0.5),
    (2, 8, {"pending": -3, "records": 1}, "2007-01-18", 0.1),
    (3, 8, {}, "9999-12-31", 0.1),
)
ANSWERS: dict[str, Any] = json.loads("""{
"recreated": 2, "missing": 0, "extra": 0, "unpaid_expected": 1, "unpaid_found": 1, "out_of_order_cases": 0,
"duplicates_injected": 1, "duplicates_removed": 1, "reordered": 1, "late": 0, "dead_letters": 0,
"events": 31589, "seconds": 2.7, "events_per_second": 3, "seed": 7, "verdict": "right",
"java": "Java 21", "machine": "2 cores <x86_64>"}""")
WRONG = {**ANSWERS, "verdict": "wrong", "recreated": 1, "missing": 1, "unpaid_found": 0}
PICTURES = ("penalties", "disorder", "duplicates", "throughput", "levels")


# the run -------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run, as the main job leaves it, with a clean log of three fines."""
    log: dict[str, list[LogEvent]] = {}
    for number, (case, day, activity) in enumerate(split(LOG, 3)):
        log.setdefault(case, []).append(LogEvent(case, activity, date.fromisoformat(day), number))
    monkeypatch.setattr(report, "read_log", lambda: log)
    (tmp_path / "replay").mkdir()
    lines = [replay_line(offset, *columns) for offset, columns in enumerate(split(REPLAY, 4))]
    (tmp_path / "replay/events.jsonl").write_text("".join(lines))
    write_results(tmp_path / "fines.db")
    return tmp_path


@pytest.fixture
def plain_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, for a page without pictures."""
    monkeypatch.setattr(report, "pictures", lambda run: [])
    monkeypatch.setattr(report, "draw", lambda scene, headline, file: file.write_bytes(b"no picture"))
    return folder


def split(table: str, columns: int) -> list[list[str]]:
    return [line.split(" ", columns - 1) for line in table.strip().split("\n")]


def replay_line(offset: int, case: str, number: str, day: str, activity: str) -> str:
    row = {"case_id": case, "ts": f"{day}T00:00:00Z", "activity": activity}
    place = {"partition": 0, "offset": offset}
    return json.dumps({**row, "event_id": f"{case}-{number}", "seq": int(number), **place}) + "\n"


def write_results(path: Path) -> None:
    activity = {(case, number): what for case, number, _, what in split(REPLAY, 4)}
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "CREATE TABLE results (batch_id, kind, key, rule, due, emitted_at, source_id, result_id, "
            "event_case_id, event_ts, event_activity, event_event_id, event_seq)"
        )
        db.execute("CREATE TABLE results_batches (query_id, batch_id, offsets, counters, watermark, seconds)")
        for batch, kind, key, rule, day, number in split(RESULTS, 6):
            due = f"{day} 00:00:00.000000"
            event = (key, due, activity[key, number], f"{key}-{number}", int(number)) if number != "-" else [None] * 5
            row = (
                int(batch),
                kind,
                key,
                rule.replace("_", " "),
                due,
                None,
                "source",
                f"{kind}-{key}",
                *event,
            )
            db.execute(f"INSERT INTO results VALUES ({', '.join('?' * 13)})", row)
        for batch, end, counters, day, seconds in BATCHES:
            offsets = f'v1\n{{}}\n{{"fines": {{"0": {end}}}}}\n-'
            row = ("query", batch, offsets, json.dumps(counters), day and f"{day} 00:00:00.000000", seconds)
            db.execute("INSERT INTO results_batches VALUES (?, ?, ?, ?, ?, ?)", row)
        db.commit()


def change(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "fines.db")) as db:
        db.execute(statement)
        db.commit()


class Page(HTMLParser):
    """Reads a page: its text, its tags with their attributes, and that each tag is closed by its own."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(self.source)
        self.close()
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def values(self, name: str) -> list[str]:
        return [str(attributes[name]) for _, attributes in self.tags if name in attributes]


# what it says --------------------------------------------------------------------------------------------


def test_the_headline_is_the_verdict(plain_folder: Path) -> None:
    page = Page(report.write_report(plain_folder, ANSWERS))

    assert "2 of 2 penalties re-created on their exact day, none missing, none extra" in page.text
    assert "WRONG" not in page.text


def test_every_figure_stands_in_the_table_beside_its_meaning(plain_folder: Path) -> None:
    text = Page(report.write_report(plain_folder, ANSWERS)).text

    assert "Penalties re-created 2 made on the exact day of the real one" in text
    assert "Duplicates injected 1 copies of events that the replay put in" in text
    assert "Events 31,589 lines of the replay, copies included" in text
    assert "Seconds 2.7 from the start of the stream to its last commit" in text
    assert "Seed 7; 2 cores <x86_64>; Java 21." in text


def test_the_captions_tell_what_the_pictures_show(folder: Path) -> None:
    text = Page(report.write_report(folder, ANSWERS)).text

    assert "2 penalties of the real log, by month; dots are the 2 that the pipeline made: no month differs." in text
    assert "2 of 6 events arrived after one of a later day" in text
    assert "1 in all; dots are those it removed, 1: equal in every batch" in text
    assert "The fastest batch took 6 events a second, the whole run 3." in text
    assert "At most 0 events were held and 3 deadlines pending after a batch; at the end 0 and 0." in text


def test_fines_are_traced_from_arrival_to_penalty_those_paid_in_time_first(plain_folder: Path) -> None:
    text = Page(report.write_report(plain_folder, ANSWERS)).text
    paid, unpaid = text.index("Fine B2: penalty 60 days"), text.index("Fine A1: penalty 60 days")

    assert paid < unpaid
    assert "3. 2007-02-01 Payment 2. 2007-01-12 Insert Fine Notification, +20 d" in text[paid:unpaid]
    assert "→ paid before 2007-03-13 3. 2007-02-01 Payment → penalty 2007-03-13" in text[paid:unpaid]
    assert "1. 2007-01-01 Create Fine, +9 d, copy" in text[unpaid:]
    assert "→ penalty 2007-03-11 → unpaid on 2007-03-11" in text[unpaid:]


def test_answers_that_nobody_knows_yet_change_nothing(plain_folder: Path) -> None:
    known = report.write_report(plain_folder, ANSWERS).read_bytes()

    assert report.write_report(plain_folder, {**ANSWERS, "moon": ["full"]}).read_bytes() == known


# when it is wrong ----------------------------------------------------------------------------------------


def test_a_wrong_run_is_red_at_the_top_and_names_its_fines(plain_folder: Path) -> None:
    change(plain_folder, "DELETE FROM results WHERE key = 'A1' AND batch_id = 2")
    page = Page(report.write_report(plain_folder, WRONG))
    top = page.text[: page.text.index("What this job does")]

    assert "verdict wrong" in page.values("class")
    assert "WRONG: 1 of 2 penalties re-created on their exact day. Penalties missing: 1. Unpaid, found: 0" in top
    assert "A1: penalty made on no day instead of 2007-03-11; listed as unpaid on no day" in top
    assert "B2:" not in top


def test_only_the_first_ten_wrong_fines_are_named(plain_folder: Path) -> None:
    for number in range(12):
        row = f"'emit', 'X{number:02d}', 'Add penalty', '2007-05-05 00:00:00.000000'"
        change(plain_folder, f"INSERT INTO results (kind, key, rule, due) VALUES ({row})")
    text = Page(report.write_report(plain_folder, {**WRONG, "extra": 12})).text

    assert "X09: penalty made on 2007-05-05 instead of no day" in text
    assert "X10" not in text


def test_a_table_that_contradicts_right_answers_makes_the_page_red(plain_folder: Path) -> None:
    change(plain_folder, "DELETE FROM results WHERE key = 'C3'")
    text = Page(report.write_report(plain_folder, ANSWERS)).text

    assert "WRONG: fines that differ from the clean log, whatever the figures say: 1" in text
    assert "C3: events delivered in the order [] instead of [1]" in text


@pytest.mark.parametrize("fault", [{"late": 3}, {"duplicates_removed": 0}, {"extra": 1}, {"verdict": "wrong"}])
def test_no_single_fault_leaves_the_headline_right(fault: dict[str, Any]) -> None:
    assert report.headline({**ANSWERS, **fault}).startswith("WRONG: 2 of 2 penalties")


def test_a_run_without_any_result_still_makes_a_page(folder: Path) -> None:
    change(folder, "DELETE FROM results")
    change(folder, "DELETE FROM results_batches")
    text = Page(report.write_report(folder, {**WRONG, "recreated": 0, "missing": 2})).text

    assert "WRONG: 0 of 2 penalties re-created" in text


@pytest.mark.parametrize(
    ("answers", "last"),
    [
        (ANSWERS, "2 of 2 penalties re-created on their exact day, none missing, none extra"),
        (
            WRONG,
            "WRONG: 1 of 2 penalties re-created on their exact day. Penalties missing: 1. Unpaid, found: 0",
        ),
    ],
)
def test_the_terminal_shows_the_figures_and_then_the_verdict(answers: dict[str, Any], last: str) -> None:
    out = StringIO()
    Console(file=out, width=120).print(report.terminal_summary(answers))

    assert "│ Events               │   31,589 │ lines of the replay" in out.getvalue()
    assert out.getvalue().endswith(f"\n{last}\n")


def test_the_picture_has_a_dot_for_each_event_as_late_as_it_was_and_for_each_penalty(
    plain_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[Any, ...]] = []
    monkeypatch.setattr(report, "draw", lambda *what: (drawn.append(what), what[2].write_bytes(b"")))
    change(plain_folder, "UPDATE results SET due = '2007-03-14 00:00:00.000000' WHERE key = 'B2' AND kind = 'emit'")
    report.write_report(plain_folder, ANSWERS)
    ((scene, headline, file),) = drawn

    assert [(behind, copy) for _, behind, copy in scene.came] == [
        (0, False), (0, False), (2, False), (0, False), (9, True), (0, False), (20, False)
    ]  # fmt: skip
    assert scene.made == [(date(2007, 1, 10), 60), (date(2007, 1, 12), 61)]
    assert headline.startswith("WRONG: ")
    assert file == plain_folder / "fines.png"


@pytest.mark.parametrize("made", [[], [(date(2007, 1, 10), 60), (date(2007, 1, 12), 90)]])
def test_a_picture_is_drawn_whatever_was_made(made: list[tuple[date, int]], tmp_path: Path) -> None:
    picture.draw(picture.Scene([(date(2007, 1, 1), 20, True)], made), "a headline", tmp_path / "fines.png")

    assert (tmp_path / "fines.png").read_bytes().startswith(b"\x89PNG")


# how it is made ------------------------------------------------------------------------------------------


def test_the_page_is_well_formed_accessible_and_fetches_nothing(folder: Path) -> None:
    page = Page(report.write_report(folder, ANSWERS))
    described = [attributes["aria-label"] or "" for _, attributes in page.tags if attributes.get("role") == "img"]

    assert page.open == []
    assert len(page.values("id")) == len(set(page.values("id")))
    assert page.values("lang") == ["en"]
    assert len(described) == 10  # five pictures, wide and narrow
    assert min(map(len, described)) > 50
    assert "http" not in page.source
    assert "script" not in {tag for tag, _ in page.tags}
    assert {link[0] for link in page.values("href")} <= {"#"}
    assert [link.partition(",")[0] for link in page.values("src")] == ["data:image/png;base64"]
    assert set(re.findall(r"url\((.)", page.source)) <= {"#"}


@pytest.mark.long(seconds=3)
def test_the_same_run_makes_the_same_page(folder: Path) -> None:
    first = report.write_report(folder, ANSWERS).read_bytes()

    assert report.write_report(folder, ANSWERS).read_bytes() == first


# in a browser --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as chrome:
        yield chrome


def opened(browser: Any, page: Path, width: int) -> tuple[Any, list[str]]:
    """The page in a window of that width, and the list of all that goes wrong in it."""
    window, wrong = made(browser, width)
    window.on("request", lambda request: wrong.append(request.url) if request.url != page.as_uri() else None)
    window.goto(page.as_uri())
    return window, wrong


@pytest.mark.browser
@pytest.mark.parametrize(
    "answers", [pytest.param(ANSWERS, marks=pytest.mark.long(seconds=6)), WRONG], ids=["right", "wrong"]
)
def test_a_browser_shows_all_five_pictures_and_nothing_sticks_out(
    folder: Path, browser: Any, answers: dict[str, Any]
) -> None:
    page = report.write_report(folder, answers)
    for width in (1200, 400):
        window, wrong = opened(browser, page, width)
        shown = [window.locator(f"#{name} svg:visible").bounding_box() for name in PICTURES]

        assert wrong == []
        assert all(box and box["width"] > width / 2 and box["height"] > 150 for box in shown)
        assert window.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_a_browser_shows_a_wrong_verdict_in_red(plain_folder: Path, browser: Any) -> None:
    window, _ = opened(browser, report.write_report(plain_folder, WRONG), 1200)
    color = window.locator(".verdict").evaluate("element => getComputedStyle(element).color")
    red, green, blue = map(int, re.findall(r"\d+", color))

    assert red > 2 * max(green, blue)
