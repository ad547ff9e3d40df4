"""Figures as text for people: one block a question, contenders down, sizes across.

Rule 1: a ratio is against the first row of its block, in the same run, and larger than one means that the first is quicker.
Rule 2: what was not measured is a dash or has no row, and a line below says why.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def short(number: int) -> str:
    """A count as one says it.

    >>> short(1_000), short(2_500_000), short(10_000_000), short(999)
    ('1k', '2.5M', '10M', '999')
    """
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= unit:
            return f"{number / unit:g}{letter}"
    return str(number)


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need, the first to the left, the others to the right."""
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(pairs)
        ).rstrip()
        for pairs in (list(zip(row, widths, strict=True)) for row in table)
    )


def verbs(figures: Mapping[str, Any]) -> str:
    """A block a verb: ns by contender and number pending."""
    ns, sizes = figures["ns"], figures["pending"]
    blocks = []
    for verb in next(iter(ns.values())):
        first = next(iter(ns.values()))[verb]
        rows = [[name, *(_cell(of[verb].get(n), first.get(n)) for n in sizes)] for name, of in ns.items()]
        blocks.append(aligned([f"{verb}, ns", *(short(n) for n in sizes)], rows))
    below = notes(figures["notes"])
    head = f"CPU ns an operation by number pending, medians of {figures['rounds']} rounds; (times the first row)"
    return "\n\n".join([head, *blocks, below]).rstrip()


def notes(by_name: Mapping[str, str]) -> str:
    """A line for each who was left out somewhere, or needs a word."""
    return "\n".join(f"{name}: {note}" for name, note in by_name.items())


def _cell(cost: float | None, first: float | None, digits: int = 0) -> str:
    if cost is None:
        return "-"
    return f"{cost:,.{digits}f}" if first is None else f"{cost:,.{digits}f} ({cost / first:.1f}x)"


def timers(figures: Mapping[str, Any]) -> str:
    """Verbs, memory, lateness, the loop, levels and ticking: what of it was measured."""
    blocks = {"memory": memory, "lateness": lateness, "driver": driver_verbs, "floor": floor, "loop": loop}
    blocks |= {"levels": levels, "ticking": ticking}
    first = [verbs(figures)] if "ns" in figures else []
    return "\n\n".join([*first, *(block(figures[name]) for name, block in blocks.items() if name in figures)])


def driver_verbs(records: Rows) -> str:
    """What a driver's verbs cost."""
    from waterclock.bench.timers.driver import table

    return table(list(map(dict, records)))


def floor(records: Rows) -> str:
    """What an add, a cancel and an expiry cannot be quicker than."""
    from waterclock.bench.timers.floor import table

    return table(list(map(dict, records)))


def memory(records: Rows) -> str:
    """Bytes a timer, what came back after each burst, the slowest cancel."""
    head = ["memory", "pending", "bytes a timer", "back: expired", "back: cancelled", "slowest cancel", "over 1 ms"]
    rows = [
        [
            r["contender"],
            short(r["pending"]),
            f"{r['bytes_a_timer']:.0f}",
            f"{r['back_after_expire']:.0%}",
            f"{r['back_after_cancel']:.0%}",
            "-" if r["slowest_cancel_us"] is None else f"{r['slowest_cancel_us']:,.0f} us",
            "-" if r["cancels_above_1_ms"] is None else str(r["cancels_above_1_ms"]),
        ]
        for r in records
        if "failed" not in r
    ]
    failed = [
        f"\n{r['contender']}, {short(r['pending'])}: not measured: {r['failed']}" for r in records if "failed" in r
    ]
    return (
        aligned(head, rows)
        + "".join(failed)
        + "\neach in a process of its own; handles' list not counted; back: of what the burst took"
    )


def lateness(records: Rows) -> str:
    """Microseconds after the due tick."""
    head = ["lateness, us", "beside", "timers", "p50", "p99", "max", "wake-ups a timer", "wake-ups idle"]
    rows = [
        [
            r["driver"],
            r["beside"],
            str(r["timers"]),
            *(f"{r[name]:,.0f}" for name in ("p50_us", "p99_us", "max_us")),
            f"{r['wakeups_a_timer']:.2f}",
            "-" if r["idle_wakeups"] is None else str(r["idle_wakeups"]),
        ]
        for r in records
    ]
    return aligned(head, rows) + (
        "\nafter the due tick of 1 ms (waterclock), or after the deadline (the others);\n"
        f"beside a busy thread a switch interval of {sys.getswitchinterval() * 1e6:,.0f} us has to be waited for"
    )


def loop(records: Rows) -> str:
    """ns a timer in an asyncio loop, against the first way of the same case."""
    head = ["a loop, CPU ns a timer", "timers", "within", "cancelled", "ns"]
    first: dict[tuple[float, float], float] = {}
    rows = []
    for r in records:
        base = first.setdefault((r["within_s"], r["cancelled"]), r["ns_a_timer"])
        case = [short(r["timers"]), f"{r['within_s']:g} s", f"{r['cancelled']:.0%}"]
        rows.append([r["driver"], *case, _cell(r["ns_a_timer"], base)])
    return aligned(head, rows)


def levels(records: Rows) -> str:
    """ns an operation by the number of levels, against the fewest of the same wheel."""
    verbs_measured = ("add", "cancel", "churn", "expire")
    first: dict[str, Mapping[str, Any]] = {}
    rows = []
    for r in records:
        base = first.setdefault(r["wheel"], r)
        costs = [_cell(r[verb], base[verb]) for verb in verbs_measured]
        rows.append([r["wheel"], short(r["pending"]), f"{r['slots']:,}", str(r["levels"]), *costs])
    return aligned(["levels, ns", "pending", "buckets a level", "levels", *verbs_measured], rows)


def ticking(records: Rows) -> str:
    """Wake-ups and CPU until two timers have run."""
    due = " and ".join(f"{ms:,}" for ms in records[0]["due_ms"])
    rows = [[r["way"], str(r["woken"]), str(r["system"]), f"{r['cpu_ms']:.1f}"] for r in records]
    return aligned([f"timers at {due} ms", "wake-ups", "the system's count", "CPU ms"], rows)


def purgatory(figures: Mapping[str, Any]) -> str:
    """The rates, what is held, and the verbs."""
    parts = [rates(figures["rates"]), turned(figures["turned"]), purgatory_verbs(figures["ns"])]
    return "\n\n".join([*parts, notes(figures["notes"])]).rstrip()


def rates(records: Rows) -> str:
    """Each rate of each load by contender, and the highest that was held."""
    head = [
        "keys, latency p50/p75",
        "requests/s",
        "",
        "CPU us",
        "held",
        "behind",
        "expired",
        "drawn",
        "most",
        "MB",
        "grown",
    ]
    first: dict[tuple[str, int], float] = {}
    rows = []
    for r in records:
        base = first.setdefault((_load(r), r["rate"]), r["cpu_us"])
        of_memory = ["-" if r[name] is None else f"{r[name]:.1f}" for name in ("resident_mb", "grown_mb")]
        shares = [f"{r['expired']:.1%}", f"{r['expected']:.1%}"]
        held = ["yes" if r["held"] else "no", f"{r['behind_ms']:.0f} ms"]
        who = [_load(r), f"{r['rate']:,}", r["contender"], _cell(r["cpu_us"], base, digits=2)]
        rows.append([*who, *held, *shares, f"{r['pending_most']:,}", *of_memory])
    about = (
        "CPU us a request, sender and timer included (times the first row of that rate); drawn: share of latencies above\n"
        "the timeout of 200 ms; most: pending at once; MB: resident at the end above the start; grown: of that in the\n"
        "second half"
    )
    return f"{aligned(head, rows)}\n{about}\n{highest(records)}"


def _load(r: Mapping[str, Any]) -> str:
    return f"{r['keys']}, {r['p50_ms']}/{r['p75_ms']} ms"


def highest(records: Rows) -> str:
    """The highest rate of each load that each contender held."""
    held: dict[str, int] = {}
    for r in records:
        load = f"{r['keys']} keys, {r['p50_ms']}/{r['p75_ms']} ms, {r['contender']}"
        held[load] = max(held.get(load, 0), r["rate"] if r["held"] else 0)
    return "\n".join(
        f"highest rate held, {load}: {f'{rate:,} requests/s' if rate else 'none of these'}"
        for load, rate in held.items()
    )


def turned(records: Rows) -> str:
    """CPU us a request by load and contender, the clock turned by hand."""
    names = list(dict.fromkeys(r["contender"] for r in records))
    loads: dict[str, list[str]] = {}
    for r in records:
        loads.setdefault(_load(r), []).append(f"{r['cpu_us']:.2f}")
    head = f"clock turned by hand, {records[0]['rate']:,}/s, CPU us"
    return aligned([head, *names], [[load, *cells] for load, cells in loads.items()])


def purgatory_verbs(ns: Mapping[str, Mapping[str, Mapping[int, float]]]) -> str:
    """ns an operation in one thread, by verb and contender."""
    first = next(iter(ns.values()))
    sizes = list(next(iter(first.values())))
    rows = [
        [f"{verb}: {name}", *(_cell(by_verb[verb].get(size), first[verb][size]) for size in sizes)]
        for verb in first
        for name, by_verb in ns.items()
    ]
    return aligned(["one thread, CPU ns", *(f"{short(size)} pending" for size in sizes)], rows)


def pipeline(records: Rows) -> str:
    """Rows a second of each contender, and whether its answer was right."""
    head = ["pipeline", "rows a batch", "ms a batch", "rows/s", "same rule", "all rules", "answer"]
    rows = [
        [
            r["contender"],
            f"{r['rows_a_batch']:,}",
            f"{r['batch_ms']:,}",
            f"{r['rows_per_second']:,}",
            "-" if r["same_rule_faster_by"] is None else f"{r['same_rule_faster_by']}x",
            f"{r['all_rules_faster_by']}x",
            "right" if r["right"] else "WRONG",
        ]
        for r in records
    ]
    return (
        aligned(head, rows)
        + "\nsame rule, all rules: how many times as fast waterclock is with the one, with all three"
    )


def cdc(records: Rows) -> str:
    """Row changes a processor second, memory, and where else the processor's time went; below it why a contender failed."""
    head = ["cdc", "row changes", "a CPU second", "a second", "MB", "CPU s a million", "broker's", "server's", "answer"]
    first: dict[tuple[str, int], float | None] = {}
    rows, failed = list[list[str]](), ""
    for r in records:
        base = first.setdefault((r["database"], r["changes"]), r.get("changes_per_cpu_s"))
        if "error" in r:
            failed += f"\n{r['database']}: {r['contender']}, {r['changes']:,}: {r['error']}"
            continue
        ratio = "" if base is None or r["changes_per_cpu_s"] == base else f" ({base / r['changes_per_cpu_s']:.2f}x)"
        cpu = [r[name] for name in ("cpu_s_per_million", "broker_cpu_s_per_million", "server_cpu_s_per_million")]
        rows.append(
            [
                f"{r['database']}: {r['contender']}",
                f"{r['changes']:,}",
                f"{r['changes_per_cpu_s']:,.0f}{ratio}",
                f"{r['changes_per_s']:,.0f}",
                f"{r['peak_mb']:,.0f}",
                *("-" if seconds is None else f"{seconds:.1f}" for seconds in cpu),
                "right" if r["right"] else "WRONG",
            ]
        )
    return aligned(head, rows) + (
        f"{failed}\n"
        "servers and broker are beside on the same cores; (how many times as many waterclock does), least of the rounds\n"
        "waterclock: into the broker, acknowledged, in transactions, its start counted in; Debezium: its JVM's start is not"
    )


def live_latency(figures: Mapping[str, Any]) -> str:
    """Milliseconds from producing a message to its committed row."""
    head = ["latency to the committed row, ms", "sink", "p50", "p99", "max", "messages", "batches", "answer"]
    rows = [
        [
            r["contender"],
            r["sink"],
            *(f"{r[name]:,.{int(r[name] < 100)}f}" for name in ("p50_ms", "p99_ms", "max_ms")),
            *(f"{r[name]:,.0f}" for name in ("messages", "batches")),
            "right" if r["right"] else "WRONG",
        ]
        for r in figures["records"]
    ]
    rate = figures["records"][0]["rate"]
    about = (
        f"{rate} messages a second; from before they are produced to after the commit of their row\n"
        f"the first {figures['warm_up_s']:.0f} s of sending are not counted: a JVM still compiles"
    )
    return "\n".join([aligned(head, rows), about, notes(figures["notes"])]).rstrip()


def bucket(records: Rows) -> str:
    """CPU of an event in one bucket by what is held, engine and part."""
    parts = list(records[0]["parts"])
    head = ["us an event", "keys held", "rows a batch", "engine", "all in", *parts, "state MB"]
    first: dict[tuple[str, int], float] = {}
    rows = []
    for r in records:
        base = first.setdefault((r["what"], r["held"]), r["us"])
        told = f"{r['us']:.2f} ({base / r['us']:.1f}x)"
        cells = [r["what"], short(r["held"]), f"{r['rows_a_batch']:,}", r["engine"], told]
        rows.append([*cells, *(f"{r['parts'][part]:.2f}" for part in parts), f"{r['state_mb']:.1f}"])
    return aligned(head, rows) + "\nCPU of the process, medians over batches; (times as quick as the plain engine)"


def held(records: Rows) -> str:
    """Milliseconds of a batch of the same rows by what is held meanwhile, and what the checkpoint weighs."""
    head = ["a batch of the same rows", "held", "rows a batch", "ms a batch", "state MB", "checkpoint MB", "answer"]
    first: dict[str, float] = {}
    rows = []
    for r in records:
        base = first.setdefault(r["what"], r["batch_ms"])
        rows.append(
            [
                r["what"],
                short(r["held"]),
                f"{r['rows_a_batch']:,}",
                f"{r['batch_ms']:,.0f} ({r['batch_ms'] / base:.2f}x)",
                f"{r['state_mb']:,.1f}",
                f"{r['checkpoint_mb']:,.1f}",
                "right" if r["right"] else "WRONG",
            ]
        )
    return aligned(head, rows) + (
        "\n(times the first of its kind); state: what the rules keep; checkpoint: all files in its folder after the run"
    )
