"""Each contender writes once, is stopped or killed, and is started over copies of its folder with one file damaged.

Rule 1: a start over an undamaged copy comes first: all must be there, and what it says is what is usual.
Rule 2: said is what names the file, its folder or the topic in a line that warns, or an error that the reader gets; that
        something is not there is no error: a reader who asks for the first time would be told the same.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from waterclock.bench.damage.clients import MANY, TAKEN, TOPIC
from waterclock.bench.damage.contenders import Contender, contenders
from waterclock.bench.damage.harm import EVERY, FEW, FLIP, NEWEST, OLDEST, ROLES, chosen, harm, kind_of
from waterclock.bench.servers import server as servers

READY_S: Final = 45.0  # who is not ready then hangs
READ_S: Final = 90.0
ALL, REFUSED, SAID = "all there", "refused", "lost and said"
MUTE, SILENT, POSITION, WRONG, HUNG = "ended, file unnamed", "lost in silence", "position lost", "wrong bytes", "hung"
OUTCOMES: Final = {
    ALL: "every message, and the reader's position",
    REFUSED: "no start, and the file or its folder is named",
    SAID: "a line names the file or the topic, or the reader gets an error",
    MUTE: "no start, and nothing names the file",
    SILENT: "acknowledged messages gone, and nobody says so",
    POSITION: "every message, but the reader's acknowledged position gone, and nobody says so",
    WRONG: "a client that takes its library's defaults gets other bytes, or the reader's process dies of them",
    HUNG: f"not ready within {READY_S:.0f} s, or a reader waits for ever",
}
NOTHING_THERE: Final = re.compile("UNKNOWN_TOPIC|not found|no such key|no responders", re.IGNORECASE)
Tell = Callable[[str], None]


def measure(rounds: int, every: bool, tell: Tell, only: Sequence[Contender] = ()) -> dict[str, Any]:
    """A line a trial; `rounds` are places of each flip in records; `every`: all damages of all files."""
    servers.READY_WITHIN_S = READY_S
    found, missing = (only, []) if only else contenders()
    trials = [trial for one in found for killed in (False, True) for trial in _trials(one, killed, rounds, every, tell)]
    return {"messages": MANY, "contenders": [one.name for one in found], "missing": missing, "trials": trials}


def _trials(who: Contender, killed: bool, rounds: int, every: bool, tell: Tell) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as place:
        folder, found = Path(place) / "server", []
        server = who.start(folder)
        try:
            _client(who.kind, server.bootstrap, "write")
            server.kill() if killed else server.stop()
            shutil.copytree(folder / "data", kept := Path(place) / "kept")
            outcome, _, usual = _started(who, server, folder, Path("-"), set())
            if outcome != ALL:
                raise RuntimeError(f"{who.name}: {outcome} without any damage: {usual}")
            for role, path, what, seed in _plan(who, kept, rounds, every):
                _laid(kept, folder / "data")
                done = harm(folder / "data" / path, what, random.Random(f"{path} {what} {seed}"))
                if not done:
                    continue
                outcome, view, words = _started(who, server, folder, path, {_plain(word) for word in usual})
                tell(f"damage: {who.name}, {'killed' if killed else 'stopped'}, {path}, {what}, {done}: {outcome}")
                row = {"who": who.name, "killed": killed, "role": role, "kind": kind_of(path), "damage": what}
                found.append({**row, "done": done, "outcome": outcome, "view": view, "words": words[:3]})
        finally:
            server.kill()
    return found


def _plan(who: Contender, kept: Path, rounds: int, every: bool) -> list[tuple[str, Path, str, int]]:
    """All damages of files with records, of others few; `every`: all of all."""
    return [
        (role, path.relative_to(kept), what, seed)
        for role, path in chosen(kept, who.roles)
        for what in (EVERY if every or role in (OLDEST, NEWEST) else FEW)
        for seed in range(rounds if what == FLIP and (every or role in (OLDEST, NEWEST)) else 1)
    ]


def _laid(kept: Path, data: Path) -> None:
    shutil.rmtree(data)
    subprocess.run(["cp", "-a", "--sparse=always", kept, data], check=True)


def _started(who: Contender, server: Any, folder: Path, path: Path, usual: set[str]) -> tuple[str, Any, list[str]]:
    """A start and a reader: the outcome, what the reader saw, and the lines that warn and are not usual."""
    log = folder / "server.log"
    before, view = log.stat().st_size, None
    try:
        server.restart()
        view = _client(who.kind, server.bootstrap, "read")
        if view.get("wrong") or "died" in view:
            view["checking"] = _client(who.kind, server.bootstrap, "checking")
    except RuntimeError as error:
        view = {"no start": "hung" if "was not ready" in str(error) else "ended"}
    server.kill()
    lines = log.read_bytes()[before:].decode(errors="replace").splitlines()
    lines = [line.replace(str(folder), "")[:300] for line in lines]
    words = [line for line in lines if re.search(who.loud, line) and _plain(line) not in usual]
    return verdict(view, words, path), view, words


def _plain(line: str) -> str:
    return re.sub(r"[0-9a-f]*\d[0-9a-f]*", "N", line)


def _client(kind: str, address: str, what: str) -> Any:
    words = [sys.executable, "-P", "-m", "waterclock.bench.damage.clients", kind, address, what]
    blind = {"right": 0, "wrong": 0, "errors": [], "taken": -1, "stuck": False}
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=READ_S, check=what == "write")
    except subprocess.TimeoutExpired:
        return {**blind, "stuck": True}
    if done.returncode:
        return {**blind, "died" if done.returncode < 0 else "errors": [done.stderr.strip().splitlines()[-1]]}
    return json.loads(done.stdout)


def verdict(view: Mapping[str, Any], words: Sequence[str], path: Path) -> str:
    """What became of a damaged file, by the reader's view and by the lines that warn."""
    names = {path.name, TOPIC} | ({path.parent.name} - {""})
    named = any(name in word for word in words for name in names)
    if "no start" in view:
        return HUNG if view["no start"] == "hung" else REFUSED if named else MUTE
    if "died" in view or view["wrong"]:
        return WRONG
    if view["right"] == MANY and view["taken"] == TAKEN:
        return ALL
    if named or any(not NOTHING_THERE.search(error) for error in view["errors"]):
        return SAID
    if view["stuck"]:
        return HUNG
    return POSITION if view["right"] == MANY else SILENT


def table(figures: dict[str, Any]) -> str:
    """A row for each role and damage, then one for each outcome."""
    from waterclock.bench.tables import aligned

    names, trials = figures["contenders"], figures["trials"]
    kinds = {(trial["role"], trial["damage"]) for trial in trials}
    by_kind = [
        [f"{role}: {what}", *(_cell(trials, who=name, role=role, damage=what) for name in names)]
        for role, what in sorted(kinds, key=lambda kind: (ROLES.index(kind[0]), EVERY.index(kind[1])))
    ]
    by_kind += [["all of these", *(_cell(trials, who=name) for name in names)]]
    by_outcome = [[told, *(_split(trials, name, told) for name in names)] for told in OUTCOMES]
    by_outcome += [["most messages that one bit took in silence", *(_by_a_bit(trials, name) for name in names)]]
    by_outcome += [["wrong bytes, checksums compared by the client", *(_checking(trials, name) for name in names)]]
    meant = [f"{name}: {what}" for name, what in OUTCOMES.items()]
    return "\n".join(
        [
            f"{figures['messages']} acknowledged messages, one file damaged in one way, a start, a reader of everything.",
            "Trials: bad (in silence, wrong bytes, hung) / said / all there",
            "",
            aligned(["damage", *names], by_kind),
            "",
            aligned(["trials after a clean stop / after kill -9", *names], by_outcome),
            "",
            *meant,
            *figures["missing"],
        ]
    )


def _outcomes(trials: Sequence[Mapping[str, Any]], **wanted: Any) -> Counter[str]:
    return Counter(trial["outcome"] for trial in trials if all(trial[key] == value for key, value in wanted.items()))


def _cell(trials: Sequence[Mapping[str, Any]], **wanted: Any) -> str:
    found = _outcomes(trials, **wanted)
    if not found:
        return "-"
    said = sum(found[outcome] for outcome in (REFUSED, SAID, MUTE))
    return f"{found.total() - said - found[ALL]} / {said} / {found[ALL]}"


def _split(trials: Sequence[Mapping[str, Any]], name: str, outcome: str) -> str:
    return " / ".join(str(_outcomes(trials, who=name, killed=killed)[outcome]) for killed in (False, True))


def _by_a_bit(trials: Sequence[Mapping[str, Any]], name: str) -> str:
    flips = [one for one in trials if one["who"] == name and one["damage"] == FLIP and one["outcome"] == SILENT]
    return str(max((MANY - one["view"]["right"] for one in flips), default=0))


def _checking(trials: Sequence[Mapping[str, Any]], name: str) -> str:
    """Of the trials with wrong bytes, how many a client got too that compares the checksums, where a client can."""
    views = [one["view"].get("checking") for one in trials if one["who"] == name and one["outcome"] == WRONG]
    known = [view for view in views if view is not None]
    return f"{sum(bool(view.get('wrong')) for view in known)} of {len(known)}" if known else "-"
