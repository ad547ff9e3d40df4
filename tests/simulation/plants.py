"""Bugs planted in the broker's source as it is imported: what the simulation has to find. `--plant NAME`, `ledger`.

A test sees that each still applies to the source of today. Those under MENDED were there once, and were mended.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.simulation.capture.plants import CAPTURE
from tests.simulation.planting import Edit
from tests.simulation.relay.plants import RELAY

B = "waterclock.broker."


class Plant(NamedTuple):
    """A bug, and what a universe needs to show it: two brokers, or clients that differ in their protocol."""

    edits: tuple[Edit, ...]
    pair: bool = False
    mixed: bool = False
    workloads: str = ""  # only universes of these


def one(module: str, old: str, new: str = "") -> Plant:
    return Plant((Edit(B + module, old, new),))


USUAL: dict[str, Plant] = {
    # an acknowledgement that comes too early
    "ahead-unflushed": one(
        "log.write_ahead", "            os.fdatasync(self._files[self._half])\n", "            pass\n"
    ),
    "file-unflushed": one("log.segment", "        os.fdatasync(self.fd)\n        if not", "        if not"),
    "store-unflushed": one(
        "store.file", "            os.fdatasync(self._fd)\n        except", "            pass\n        except"
    ),
    "folder-unflushed": one("log.segment", "                flush_folder(folder)\n", "                pass\n"),
    "whole-unflushed": Plant((Edit("waterclock.disk", "        os.fsync(file.fileno())  # 2\n    # 3", "    # 3"),)),
    "end-at-the-end": Plant(
        (
            Edit(B + "flusher", "flushed_ahead(self.end, *self", "flushed_ahead(self.partition.end, *self"),
            Edit(B + "flusher", "flushed(self.end, self.files)", "flushed(self.partition.end, self.files)"),
        )
    ),
    "high-before-durable": one(
        "replication.replicas",
        "state, high = self._state(partition), partition.durable",
        "state, high = self._state(partition), partition.end",
    ),
    "half-unsettled": Plant(
        (
            Edit(
                B + "log.write_ahead", "            _settle(self._unflushed[other])  # unless", "            # unless"
            ),
            Edit(B + "log.write_ahead", "        _settle(unflushed)\n", ""),
        )
    ),
    # transactions
    "epoch-unchecked": one(
        "transactions.record",
        "    if record.epoch != producer.epoch and not again:\n        return Error.PRODUCER_FENCED\n",
    ),
    "stable-forgotten": one(
        "log.partition",
        "return self.high if first is None else max(self.start, min(first, self.high))",
        "return self.high",
    ),
    "markers-forgotten": one(
        "transactions.restart",
        "[p for p in coordinator.ending.partitions(record) if _concerns(record, p)]\n            for",
        "[]\n            for",
    ),
    "answer-before-markers": one("transactions.markers", "        self.wait(waits, durable)", "        durable()"),
    "offsets-without-transaction": one(
        "transactions.markers",
        "            if decided.commits:\n                self._groups.offsets.apply",
        "            if True:\n                self._groups.offsets.apply",
    ),
    "refusal-half-told": one(
        "store.store", "group = [each for each in several if each.era > refused]", "group = several"
    ),
    # what a start makes of what it finds
    "row-unchecked": Plant(
        (
            Edit(
                B + "log.index",
                "if check == base ^ at ^ latest ^ SALT ^ start and base >= start and at >= 0 else None",
                "",
            ),
            Edit(B + "log.index", "next(compress(count(), map(ne, sums, checks)), len(checks))", "len(checks)"),
        )
    ),
    "batch-unchecked": one("log.tail", "follows and crc32c(data[CHECKED:]) == batch.crc", "follows"),
    "dedup-four": one("log.producers", "KEPT: Final = 5", "KEPT: Final = 4"),
    "dedup-lost-at-start": one(
        "log.producers",
        "                known.sent.append(SentBatch(*SENT.unpack_from(data, at)))",
        "                known.sent and known.sent.append(SentBatch(*SENT.unpack_from(data, at)))",
    ),
    "aborted-unflushed": one("log.snapshot", "                    flush_file(path)\n", "                    pass\n"),
    "snapshot-early": one(
        "log.partition",
        "if self._snapshot is not None and self._snapshot[0] <= self.durable:",
        "if self._snapshot is not None:",
    ),
}
MENDED: dict[str, Plant] = {
    "short-write-put-back": one(
        "log.replay", "            write_all(segment.fd, data, at)", "            os.pwrite(segment.fd, data, at)"
    ),
    "put-back-unflushed": one("log.replay", "    os.fdatasync(segment.fd)\n    return restored", "    return restored"),
    "old-turn-put-back": one("log.replay", "[frame for frame in found if frame.first == first]", "found"),
    "half-forgotten": one(
        "log.write_ahead",
        "            if half != self._half:\n                self._unflushed[half].clear()",
        "            self._unflushed[half].clear()",
    ),
    "zombie-epoch": one(
        "transactions.record", "if protocol == 2 and record.protocol == 2:", "if protocol == 2:"
    )._replace(mixed=True),
    "first-marker-only": one(
        "transactions.markers", "list(self.partitions(decided)), now_ms", "list(self.partitions(decided))[:1], now_ms"
    ),
    "sent-again-appended": one(
        "log.producers", "                return Error.NONE, sent\n", "                return Error.NONE, None\n"
    ),
    "part-of-a-frame": one("store.file", "            self._cut()\n            raise", "            raise"),
    "cut-before-start": Plant(
        (
            Edit(
                B + "log.removal",
                "        segment.delete()\n        partition.segments.remove(segment)\n",
                "        if segment is not partition.segments[0]:\n"
                "            segment.delete()\n            partition.segments.remove(segment)\n",
            ),
            Edit(B + "log.memo", "or [(0, end)]", "or [self.epochs[0]]"),
            Edit(
                B + "api.fetch",
                "end = partition.durable if self._request.replica >= 0 else partition.end",
                "end = partition.end",
            ),
            Edit(B + "replication.replicas", "if state is None or offset > partition.durable:", "if state is None:"),
            Edit(
                B + "replication.fetcher",
                "while partition.end > partition.memo.epochs[0][1]:",
                "while partition.end > partition.start:",
            ),
            Edit(
                B + "replication.fetcher",
                "                return max(end, 0)",
                "                return max(end, partition.start)",
            ),
            Edit(B + "replication.fetcher", "                return 0\n", "                return partition.start\n"),
        ),
        pair=True,
    ),
    "promotion-cut-short": Plant(
        (
            Edit(
                B + "follower", "        await self._loop.run_in_executor(None, self.replica.begin, epoch)  # 4\n", ""
            ),
            Edit(
                B + "follower",
                '        await self.replica.keep(Entry("self", key, value) for key, value in known.items())  # 3\n',
                "        await self._loop.run_in_executor(None, self.replica.begin, epoch)\n"
                '        await self.replica.keep(Entry("self", key, value) for key, value in known.items())  # 3\n',
            ),
        ),
        pair=True,
    ),
    "promotion-unfinished": one(
        "core", "            begin_epoch([*self.topics.partitions(), journal], epoch)\n", "            pass\n"
    )._replace(pair=True),
    "high-without-follower": one(
        "replication.replicas", "            high = min(high, state.end)\n", "            pass\n"
    )._replace(pair=True),
    "journal-alone": one(
        "replication.replicas",
        'return min(int(self._settings["min.insync.replicas"]), len(self.all())) > 1',
        "return False",
    )._replace(pair=True),
    "copied-not-remembered": one(
        "replication.replica",
        'await self.keep([Entry("self", known, self._read)])',
        "pass",
    )._replace(pair=True),
}
OF_RELAYS = {
    name: Plant((Edit("waterclock.relay." + module, old, new),), workloads="relay")
    for name, (module, old, new) in RELAY.items()
}
OF_CAPTURES = {
    name: Plant(tuple(Edit(f"waterclock.{module}", old, new) for module, old, new in edits), workloads="capture")
    for name, edits in CAPTURE.items()
}
PLANTS = USUAL | MENDED | OF_RELAYS | OF_CAPTURES
