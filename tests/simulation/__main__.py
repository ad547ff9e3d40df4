"""python -m tests.simulation SEED [COUNT] [--seconds N] [--pair] [--plant NAME] [--trace FILE] ..."""

import argparse
import gc
import json
import signal
import sys
import time

from tests.simulation import plants
from waterclock.simulation import install

if "--plant" in sys.argv:
    plants.plant(sys.argv[sys.argv.index("--plant") + 1])
install.install()
from tests.simulation import universe  # noqa: E402


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--trace")
    parser.add_argument("--until-found", action="store_true")
    parser.add_argument("--plant", choices=[*plants.PLANTS])
    parser.add_argument("--pair", action="store_true")
    parser.add_argument("--hash", action="store_true")
    parser.add_argument("--faults", help="three kinds or more, with commas")
    parser.add_argument("--past-known", action="store_true", help="empty a follower that cannot follow, and go on")
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--profile", action="store_true")
    told = parser.parse_args()
    began, cpu = time.monotonic(), time.process_time()
    total = {"histories": 0, "ops": 0, "acked": 0, "read": 0, "events": 0, "syscalls": 0, "virtual_s": 0.0, "txns": 0}
    faults, bad = {}, []
    universe.Universe.mixed, universe.Universe.past_known = told.mixed, told.past_known
    if told.faults:
        universe.Universe.kinds = tuple(told.faults.split(","))
    if told.profile:
        import cProfile

        profile = cProfile.Profile()
        profile.enable()
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    for seed in range(told.seed, told.seed + told.count):
        if stop:
            break
        trace = open(told.trace, "w") if told.trace else None
        one = universe.run(seed, trace, told.seconds, universe.Pair if told.pair else universe.Universe)
        world, history = one.world, one.history
        if trace:
            trace.close()
        total["histories"] += 1
        for key, more in (
            ("ops", history.ops), ("acked", history.acked), ("read", history.read), ("events", world.events),
            ("syscalls", world.syscalls), ("virtual_s", world.now / 1e9 - 1000), ("txns", len(history.txns)),
        ):  # fmt: skip
            total[key] += more
        for what, count in one.faults.items():
            faults[what] = faults.get(what, 0) + count
        if told.hash:
            print(f"hash {seed} {world.digest.hexdigest()} {world.lines}")
        if world.problems:
            bad.append(seed)
            kinds = sorted({kind for kind, _ in world.problems})
            print(flush=True, end="")
            print(f"seed {seed}: {len(world.problems)} of {kinds}; hash {world.digest.hexdigest()}")
            for kind, story in world.problems[:6]:
                print(f"    {kind}: {story[:300]}", flush=True)
            if told.until_found:
                print(f"found after {total['histories']} histories, {time.process_time() - cpu:.1f} CPU s")
                break
        elif told.count == 1:
            print(f"seed {seed}: no problem; hash {world.digest.hexdigest()}")
        del one, world, history
        universe.World.now_world = None
        if seed % 25 == 0 and told.count > 25:
            print(json.dumps({**total, "bad": bad, "faults": faults}), flush=True)
        if seed % 5 == 0:
            gc.collect()
    if told.profile:
        profile.disable()
        import pstats

        pstats.Stats(profile).sort_stats("tottime").print_stats(28)
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    print(json.dumps({**total, "bad": len(bad), "wall_s": round(seconds, 2), "cpu_s": round(cpu, 2), "faults": faults}))
    return 1 if bad else 0


sys.exit(main())
