"""The campaign by hand.

    python -m tests.relay.kills --minutes 30 --brokers own --seed 1

Rule 1: episodes follow each other on one broker, with the seeds SEED, SEED + 1, ...; each has topics and a folder of its
    own, which goes when all was well and stays where a promise was broken, or something came very late.
Rule 2: a line for each episode, and where a message came more than `LATE_MS` too late, what was done around it; the figures
    of all at the end and in FOLDER/figures-BROKERS.json.
Rule 3: the exit code is 1 where a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import time
from collections import Counter
from itertools import count
from pathlib import Path

from tests.relay.kills.episode import UNENDED, Episode, Plan, around
from tests.relay.kills.processes import Apache, Own

LATE_MS = 15_000  # a relay that is gone is missed after six seconds; a kill may follow another one
KINDS = {"own": Own, "apache": Apache}


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser("python -m tests.relay.kills", description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    found.add_argument("--minutes", type=float, default=10.0, help="how long episodes are begun (default: 10)")
    found.add_argument("--brokers", choices=sorted(KINDS), default="own", help="ours, or Apache Kafka (default: own)")
    found.add_argument("--seed", type=int, default=1, help="of the first episode (default: 1)")
    found.add_argument("--seconds", type=float, default=60.0, help="faults of an episode (default: 60)")
    found.add_argument("--folder", type=Path, default=Path("out/relay-kills"), help="default: out/relay-kills")
    return found


def campaign(asked: argparse.Namespace) -> int:
    until_s, total = time.monotonic() + asked.minutes * 60, Counter[str]()
    home = asked.folder / f"{asked.brokers}-{asked.seed}"
    shutil.rmtree(home, ignore_errors=True)
    broker = KINDS[asked.brokers](home / "broker")
    try:
        for number in count():
            if time.monotonic() >= until_s:
                break
            plan = Plan(asked.seed + number, asked.seconds)
            episode = Episode(home / f"{plan.seed}", broker, plan)
            result = episode.run()
            total.update(result.figures)
            whose = f"violations, and {UNENDED}" if result.figures[UNENDED] else "violations"
            total.update({"episodes": 1, whose: len(result.violations)})
            latest = episode.latest
            total["worst lateness, ms"] = max(total["worst lateness, ms"], latest.ms)
            print(f"seed {plan.seed}: {dict(result.figures)}, worst lateness {latest.ms} ms, quiet after "
                  f"{episode.quiet_s:.1f} s", flush=True)  # fmt: skip
            if latest.ms > LATE_MS:
                print(f"  {latest}", *around(latest, episode.history), sep="\n  ", flush=True)
            for violation in result.violations[:10]:
                print(f"  {violation.kind}: {violation.what}", flush=True)
            if not result.violations and latest.ms <= LATE_MS:
                shutil.rmtree(episode.folder)
            (asked.folder / f"figures-{asked.brokers}.json").write_text(
                json.dumps(dict(sorted(total.items())), indent=1)
            )
    finally:
        broker.kill()
    print("\n".join(f"{figure:>10}  {name}" for name, figure in sorted(total.items())), flush=True)
    return min(total["violations"], 1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(campaign(parser().parse_args()))
