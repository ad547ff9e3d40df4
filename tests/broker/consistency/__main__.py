"""The campaign by hand.

    python -m tests.broker.consistency --minutes 60 --brokers 2 --seed 7

Rule 1: episodes follow each other, with the seeds SEED, SEED + 1, ...; each has a folder of its own, which goes when all
    was well and stays where a promise was broken, with the command that repeats it.
Rule 2: a line every ten seconds; the figures of all episodes at the end, as text, and after each in
    FOLDER/figures-1.json or FOLDER/figures-2.json, by the number of brokers.
Rule 3: the exit code is 1 where a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import threading
from collections import Counter
from itertools import count
from pathlib import Path

from tests.broker.consistency.episode import SHOWN, Episode, Plan, Result
from tests.broker.consistency.logs import CLOCK


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser("python -m tests.broker.consistency", description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    found.add_argument("--minutes", type=float, default=10.0, help="how long episodes are begun (default: 10)")
    found.add_argument("--brokers", type=int, choices=(1, 2), default=1, help="one, or a leader and its follower")
    found.add_argument("--seed", type=int, default=1, help="of the first episode (default: 1)")
    found.add_argument("--seconds", type=float, default=60.0, help="faults of an episode (default: 60)")
    found.add_argument("--episodes", type=int, default=None, help="no more than so many")
    found.add_argument("--folder", type=Path, default=Path("out/consistency"), help="default: out/consistency")
    return found


def campaign(asked: argparse.Namespace) -> int:
    until_s, total = CLOCK.monotonic_s() + asked.minutes * 60, Counter[str]()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for number in count():
        if CLOCK.monotonic_s() >= until_s or number == asked.episodes:
            break
        plan = Plan(asked.seed + number, asked.brokers, asked.seconds)
        folder = asked.folder / f"{plan.brokers}-{plan.seed}"
        shutil.rmtree(folder, ignore_errors=True)
        result = shown(folder, plan)
        total.update(result.figures)
        total.update({"episodes": 1, "violations": len(result.violations)})
        total.update(f"violation: {one.kind}" for one in result.violations)
        (asked.folder / f"figures-{plan.brokers}.json").write_text(json.dumps(dict(sorted(total.items())), indent=1))
        tell(result, folder)
    print("\n".join(f"{figure:>10}  {name}" for name, figure in sorted(total.items())), flush=True)
    return min(total["violations"], 1)


def shown(folder: Path, plan: Plan) -> Result:
    """An episode, with a line every ten seconds."""
    episode, over, began_s = Episode(folder, plan), threading.Event(), CLOCK.monotonic_s()

    def progress() -> None:
        while not over.wait(10):
            done = ", ".join(f"{count} {what}" for what, count in sorted(episode.nemesis.done.items()))
            size = sum(path.stat().st_size for path in episode.crew.folder.glob("*.jsonl")) >> 10
            print(f"seed {plan.seed} {CLOCK.monotonic_s() - began_s:4.0f} s, {size} KiB of history: {done}", flush=True)

    threading.Thread(target=progress, daemon=True).start()
    try:
        return episode.run()
    finally:
        over.set()


def tell(result: Result, folder: Path) -> None:
    """The violations of an episode, a few of each kind; its folder goes where there are none."""
    kinds = Counter(one.kind for one in result.violations)
    words = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "no violation"
    print(f"seed {result.plan.seed}, {result.plan.brokers} broker(s): {words}", flush=True)
    if not kinds:
        shutil.rmtree(folder, ignore_errors=True)
        return
    shown: Counter[str] = Counter()
    text = []
    for one in result.violations:
        shown[one.kind] += 1
        text += [str(one)] if shown[one.kind] <= SHOWN else []
    (folder / "violations.txt").write_text("\n".join([*text, result.plan.again, ""]))
    print("\n".join([*text, f"kept in {folder}; again: {result.plan.again}"]), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))  # brokers and clients end with it
    sys.exit(campaign(parser().parse_args()))
