"""The report of the main job for people: an HTML page that needs nothing but itself, a picture, a terminal table.

Rule 1: a green headline never stands over a figure or a fine that contradicts it: any fault makes it red.
Rule 2: what is shown of single fines is read anew from the replay, fines.db and the clean log.
"""

from __future__ import annotations

import json
import sqlite3
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from .charts import Picture, Run, number, pictures, read_batches
from .log import NOTIFIED, penalties, read_log, unpaid
from .picture import Scene, draw

# name in the answers, label, meaning, and what it must be: a number, or the name of another figure
FIGURES: tuple[tuple[str, str, str, int | str | None], ...] = (
    ("recreated", "Penalties re-created", "made on the exact day of the real one", None),
    ("missing", "Penalties missing", "real, but not made; must be 0", 0),
    ("extra", "Penalties extra", "made, but not real; must be 0", 0),
    ("unpaid_expected", "Unpaid, expected", "fines without a payment within 60 days, computed plainly", None),
    ("unpaid_found", "Unpaid, found", "listed by the pipeline; must be the number above", "unpaid_expected"),
    ("unpaid_wrong", "Unpaid, wrong", "listed and should not be, or the reverse; must be 0", 0),
    ("out_of_order_cases", "Fines out of order", "events not delivered as sent, in order, each once; must be 0", 0),
    ("others_wrong", "Other results, wrong", "payments in time, and what nobody asked for; must be 0", 0),
    ("duplicates_injected", "Duplicates injected", "copies of events that the replay put in", None),
    ("duplicates_removed", "Duplicates removed", "dropped; must be the number above", "duplicates_injected"),
    ("reordered", "Events re-ordered", "taken before an earlier one of their fine; held for it", None),
    ("late", "Events late", "more than 14 days behind, too late for the watermark; must be 0", 0),
    ("dead_letters", "Dead letters", "records that could not be read", None),
    ("events", "Events", "lines of the replay, copies included", None),
    ("seconds", "Seconds", "from the start of the stream to its last commit", None),
    ("events_per_second", "Events a second", "over those seconds", None),
    ("latency_p50_s", "Latency, half", "seconds from sending to commit: half of the events took no longer", None),
    ("latency_p99_s", "Latency, 99 of 100", "the same, for 99 in 100 of them", None),
)
ABOUT = """In the records of an Italian police force, a penalty is added to a traffic fine exactly 60 days
after its notification: the records show a timer firing. This job takes 10,000 of these fines, removes
every penalty, and replays the rest as a careless network would: each event up to 14 days late, so that
events overtake each other, and one in twenty of them twice. The replay is sent to a topic of Kafka, on
waterclock’s own broker, while a pipeline with waterclock’s rules runs on it. The pipeline drops the
copies, puts the events of each fine back in order, and sets a 60-day timer at each notification. Then what
it wrote is compared with the records: each penalty must stand on its exact day, once, and no other; each
fine without a payment by that day must be listed as unpaid; and each event must come out once, in
order."""
SEEN = """On the left the events of the replay as they came, somewhere within the day by which each was late; on the
right the penalties that the pipeline made, by the days since their notification."""
TRACED = """What went in (+2 d: it came two days behind the latest event time seen), and what came out. The
number in front is the event’s place in its fine. Fines paid in time come first: the records have a penalty
for them too, but they are not unpaid."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A line of the replay; `behind`: the days it came after the latest event time sent before it."""

    case_id: str
    day: date
    activity: str
    sequence: int
    behind: int
    copy: bool
    partition: int
    offset: int


@dataclass(slots=True)
class Case:
    """One fine: its lines and its results as they came: (kind, day, activity or rule, sequence)."""

    arrived: list[Arrival] = field(default_factory=list)
    results: list[tuple[str, date, str, int | None]] = field(default_factory=list)

    def days(self, kind: str) -> list[date]:
        return [day for result, day, _, _ in self.results if result == kind]

    def liveliness(self) -> int:
        """How much there is to see: events in disorder, copies."""
        order = [a.sequence for a in self.arrived if not a.copy]
        return (order != sorted(order)) + any(a.copy for a in self.arrived)

    def differences(self, penalty: date | None, debt: date | None) -> Iterator[str]:
        """What is not as the clean log says: the days of its penalty and of being unpaid, the order."""
        for kind, what, day in ("emit", "penalty made on", penalty), ("expired", "listed as unpaid on", debt):
            if self.days(kind) != [day] * (day is not None):
                yield f"{what} {_days(self.days(kind))} instead of {day or 'no day'}"
        wanted = sorted({arrival.sequence for arrival in self.arrived})
        if (came := [sequence for kind, _, _, sequence in self.results if kind == "event"]) != wanted:
            yield f"events delivered in the order {came} instead of {wanted}"


def write_report(folder: Path, answers: Mapping[str, Any]) -> Path:
    """Write `report.html` and `fines.png` into `folder` from its replay, its fines.db and the clean log.

    Returns the page's path. The picture stands in the page too.
    """
    log, arrivals = read_log(), list(read_arrivals(folder / "replay"))
    with closing(sqlite3.connect(folder / "fines.db")) as db:
        cases = read_cases(db, arrivals)
        batches = list(read_batches(db, {(a.partition, a.offset): a.copy for a in arrivals}))
    real, owing = dict(penalties(log)), dict(unpaid(log))
    made = [day for case in cases.values() for day in case.days("emit")]
    behind = [arrival.behind for arrival in arrivals if not arrival.copy]
    run = Run(list(real.values()), made, behind, batches, float(answers["events_per_second"]))
    reported = {n: "; ".join(case.differences(real.get(n), owing.get(n))) for n, case in cases.items()}
    wrong = [f"{name}: {words}" for name, words in reported.items() if words]
    draw(_scene(arrivals, cases), _verdict(answers, wrong), folder / "fines.png")
    body = (
        _top(answers, wrong)
        + _seen(folder / "fines.png")
        + _figures(answers)
        + _charts(pictures(run))
        + _traces(cases, real)
    )
    page = folder / "report.html"
    page.write_text(f"{_HEAD}{body}{_again(answers)}</main></body></html>\n", encoding="utf-8")
    return page


def terminal_summary(answers: Mapping[str, Any]) -> Group:
    """The numbers as a table and the verdict under it, to print with `rich`."""
    table = Table(title="Traffic fines", caption=_ran_on(answers), title_justify="left")
    table.add_column("what")
    table.add_column("how many", justify="right")
    table.add_column("meaning")
    for name, label, clause, must in _shown(answers):
        style = "bold red" if _is_wrong(answers, name, must) else ""
        table.add_row(label, number(answers[name]), Text(clause, style="dim"), style=style)
    return Group(table, Text(headline(answers), style="bold green" if is_right(answers) else "bold red"))


def read_arrivals(folder: Path) -> Iterator[Arrival]:
    """The lines of the replay in the order of arrival."""
    seen: set[str] = set()
    latest = date.min
    for path in sorted(folder.glob("*.jsonl")):
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            day = date.fromisoformat(row["ts"][:10])
            behind, copy = max(0, (latest - day).days), row["event_id"] in seen
            place = row["partition"], row["offset"]
            yield Arrival(row["case_id"], day, row["activity"], row["seq"], behind, copy, *place)
            latest = max(latest, day)
            seen.add(row["event_id"])


def read_cases(db: sqlite3.Connection, arrivals: Iterable[Arrival]) -> dict[str, Case]:
    """Every fine with what went in and what came out."""
    cases: dict[str, Case] = {}
    for arrival in arrivals:
        cases.setdefault(arrival.case_id, Case()).arrived.append(arrival)
    columns = "key, kind, substr(due, 1, 10), ifnull(event_activity, rule), event_seq"
    rows = db.execute(f"SELECT {columns} FROM results ORDER BY rowid")
    for key, kind, due, what, sequence in rows:
        cases.setdefault(key, Case()).results.append((kind, date.fromisoformat(due), what, sequence))
    return cases


def faults(answers: Mapping[str, Any]) -> list[str]:
    """The figures that are not what they must be, in words; empty when all are."""
    return [
        f"{label}: {number(answers[name])}"
        for name, label, _, must in _shown(answers)
        if _is_wrong(answers, name, must)
    ]


def is_right(answers: Mapping[str, Any]) -> bool:
    return answers["verdict"] == "right" and not faults(answers)


def headline(answers: Mapping[str, Any]) -> str:
    """The verdict in one line, the same on the page and in the terminal."""
    made, real = answers["recreated"], answers["recreated"] + answers["missing"]
    say = f"{number(made)} of {number(real)} penalties re-created on their exact day"
    if is_right(answers):
        return f"{say}, none missing, none extra"
    return ". ".join([f"WRONG: {say}", *faults(answers)])


def _shown(answers: Mapping[str, Any]) -> Iterator[tuple[str, str, str, int | str | None]]:
    return (figure for figure in FIGURES if figure[0] in answers)


def _is_wrong(answers: Mapping[str, Any], name: str, must: int | str | None) -> bool:
    return must is not None and answers[name] != (answers[must] if isinstance(must, str) else must)


def _ran_on(answers: Mapping[str, Any]) -> str:
    return f"Seed {answers['seed']}; {answers['machine']}; {answers['java']}"


def _days(days: list[date]) -> str:
    return ", ".join(map(str, days)) or "no day"


# the page ------------------------------------------------------------------------------------------------


def _top(answers: Mapping[str, Any], wrong: list[str]) -> str:
    """The verdict, red with the first ten wrong fines where anything is wrong; then what the job is."""
    color, listed = "right", ""
    if wrong or not is_right(answers):
        items = _items(wrong[:10]) or "<li>No single fine differs from the clean log; see the numbers.</li>"
        color, listed = "wrong", f"<h2>The first wrong fines</h2><ol>{items}</ol>"
    return (
        "<h1>Traffic fines, replayed and re-created</h1>\n"
        f'<div class="verdict {color}"><p><strong>{escape(_verdict(answers, wrong))}</strong></p>\n'
        f"{listed}</div>\n<h2>What this job does</h2>\n<p>{ABOUT}</p>\n"
    )


def _verdict(answers: Mapping[str, Any], wrong: list[str]) -> str:
    if wrong and is_right(answers):
        return f"WRONG: fines that differ from the clean log, whatever the figures say: {len(wrong)}"
    return headline(answers)


def _scene(arrivals: Iterable[Arrival], cases: Mapping[str, Case]) -> Scene:
    """A penalty of a fine without a notification stands at its own day, no day after it."""
    made: list[tuple[date, int]] = []
    for case in cases.values():
        notified = next((arrival.day for arrival in case.arrived if arrival.activity == NOTIFIED), None)
        made += [(notified or day, (day - (notified or day)).days) for day in case.days("emit")]
    return Scene([(arrival.day, arrival.behind, arrival.copy) for arrival in arrivals], made)


def _seen(picture: Path) -> str:
    image = f'<img src="data:image/png;base64,{b64encode(picture.read_bytes()).decode()}" alt="{SEEN}"/>'
    return f'<figure id="run">{image}\n<figcaption>{SEEN}</figcaption></figure>\n'


def _figures(answers: Mapping[str, Any]) -> str:
    rows = "\n".join(
        f'<tr{" class=wrong" * _is_wrong(answers, name, must)}><th scope="row">{label}</th>'
        f'<td class="figure">{escape(number(answers[name]))}</td><td>{clause}</td></tr>'
        for name, label, clause, must in _shown(answers)
    )
    head = '<th scope="col">What</th><th scope="col" class="figure">How many</th><th scope="col">Meaning</th>'
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
    return f"<h2>The numbers</h2>\n{table}\n<p>{escape(_ran_on(answers))}.</p>\n<h2>The pictures</h2>\n"


def _charts(shown: list[Picture]) -> str:
    return "\n".join(
        f'<figure id="{p.name}"><h3>{p.title}</h3>\n'
        f'<div class="wide" role="img" aria-label="{p.title}. {p.caption}">{p.wide}</div>\n'
        f'<div class="narrow" role="img" aria-label="{p.title}. {p.caption}">{p.narrow}</div>\n'
        f"<figcaption>{p.caption}</figcaption></figure>\n"
        for p in shown
    )


def _traces(cases: Mapping[str, Case], real: Mapping[str, date]) -> str:
    """Ten lively fines from end to end; sorting ids from their last digit picks them from all years."""
    lively = sorted(cases.keys() & real.keys(), key=lambda name: (-cases[name].liveliness(), name[::-1]))
    paid = [name for name in lively if cases[name].days("met")][:3]
    chosen = [*paid, *(name for name in lively if name not in paid)][:10]
    shown = "\n".join(_trace(name, cases[name], real[name]) for name in chosen)
    return f'<h2>Ten fines, traced</h2>\n<p>{TRACED}</p>\n<div class="traces">\n{shown}\n</div>\n'


def _trace(name: str, case: Case, real: date) -> str:
    notified = next((a.day for a in case.arrived if a.activity == NOTIFIED), real)
    waits = ", ".join(f"{(day - notified).days} days" for day in case.days("emit")) or "never"
    went_in = _items(
        f"{a.sequence}. {a.day} {a.activity}" + f", +{a.behind} d" * (a.behind > 0) + ", copy" * a.copy
        for a in case.arrived
    )
    return (
        f"<article><h3>Fine {escape(name)}: penalty {waits} after notice</h3>\n"
        f"<p>Penalty made on {_days(case.days('emit'))}; the real one: {real}.</p>\n"
        f"<div><div><h4>In, as it arrived</h4><ul>{went_in}</ul></div>\n"
        f"<div><h4>Out, as it was delivered</h4><ul>{_items(_came_out(case))}</ul></div></div></article>"
    )


def _came_out(case: Case) -> Iterator[str]:
    words = {"emit": "→ penalty", "expired": "→ unpaid on", "met": "→ paid before"}
    for kind, day, what, sequence in case.results:
        yield f"{sequence}. {day} {what}" if kind == "event" else f"{words.get(kind, kind)} {day}"


def _again(answers: Mapping[str, Any]) -> str:
    return f"""<h2>Run it again</h2>
<pre>make run                               # in a clone of the project
waterclock demo fines --seed {escape(str(answers["seed"]))}         # with the package installed</pre>
<p>The same seed makes the same replay; another one makes another disorder, and the same penalties.
The results stand beside this page in <code>fines.db</code>, the numbers in <code>report.json</code>.</p>
"""


def _items(lines: Iterable[str]) -> str:
    return "".join(f"<li{' class=made' * line.startswith('→')}>{escape(line)}</li>" for line in lines)


_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>waterclock: traffic fines, re-created</title><style>
body { margin: 0; background: #fbfbfa; color: #222; font: 16px/1.5 system-ui, Helvetica, Arial, sans-serif }
main { max-width: 960px; margin: 0 auto; padding: 16px } h1 { margin: .5em 0 .3em; font-size: 30px }
h2 { margin: 1.7em 0 .4em; font-size: 21px } h3 { margin: 0 0 .3em; font-size: 17px } h4 { margin: 0 }
.verdict { padding: 2px 18px; border-left: 8px solid; font-size: 18px; overflow-wrap: anywhere }
.verdict h2 { margin: .4em 0 0; font-size: 16px } .verdict ol { font-size: 15px }
.right { border-color: #00704d; background: #e6f4ee }
.wrong { border-color: #b3150e; background: #fdebe9; color: #8c0f09 }
table { border-collapse: collapse; width: 100% } tbody th { font-weight: 600 }
th, td { padding: 5px 10px; border-bottom: 1px solid #ddd; text-align: left }
.figure { text-align: right; font-variant-numeric: tabular-nums }
figure, article { margin: 16px 0; padding: 14px; background: #fff; border: 1px solid #e2e2e0 }
figure svg, figure img { display: block; width: 100%; height: auto } figure text { font-family: inherit !important }
figcaption { margin-top: 6px; font-size: 15px; color: #444 } .narrow { display: none }
.traces { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 440px), 1fr)); gap: 16px }
article { margin: 0; font-size: 15px } article p { margin: 0 0 .5em }
article > div { display: grid; grid-template-columns: 1fr 1fr; gap: 12px }
ul { margin: 0; padding: 0; list-style: none; font-size: 13px } .made { font-weight: 600; color: #0b3c5d }
ul li { padding: 2px 0; border-top: 1px solid #eee }
pre { padding: 10px; background: #f0f0ee; overflow-x: auto }
@media (max-width: 640px) { .wide { display: none } .narrow { display: block } main { padding: 8px }
th, td { padding: 4px 5px; font-size: 14px } figure, article { padding: 8px } }
</style></head>
<body><main>
"""
