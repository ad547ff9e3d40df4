"""Bugs planted in the product's source as it is imported: what the simulation has to find. `--plant NAME`, `ledger`.

A test sees that each still applies to the source of today. Those of mended.py were there once. A room of the simulation
that has plants of its own has a plants.py: the PACKAGE that they are in, the KINDS of universes, the TABLE of edits:
each (module, text that is there once, what stands there instead).
"""

from __future__ import annotations

from tests.simulation.capture import plants as capture
from tests.simulation.mended import MENDED
from tests.simulation.plant import BROKER, Plant, one, shown_by
from tests.simulation.planting import Edit
from tests.simulation.relay import plants as relay
from tests.simulation.rules import local_plants as local
from tests.simulation.rules import plants as rules

ROOMS = (capture, relay, rules, local)

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
            Edit(BROKER + "flusher", "flushed_ahead(self.end, *self", "flushed_ahead(self.partition.end, *self"),
            Edit(BROKER + "flusher", "flushed(self.end, self.files)", "flushed(self.partition.end, self.files)"),
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
                BROKER + "log.write_ahead",
                "            _settle(self._unflushed[other])  # unless",
                "            # unless",
            ),
            Edit(BROKER + "log.write_ahead", "        _settle(unflushed)\n", ""),
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
        "transactions.restart", "[p for p in coordinator.ending.partitions(r) if _concerns(r, p)]", "list[Partition]()"
    ),
    "answer-before-markers": one(
        "transactions.markers", "        self.wait(waits, durable)", "        durable()", "uneven"
    ),
    "offsets-without-transaction": one(
        "transactions.markers",
        "            if decided.commits:\n                self._groups.offsets.apply",
        "            if True:\n                self._groups.offsets.apply",
    ),
    "refusal-half-told": one(
        "store.store", "group = [each for each in several if each.era > refused]", "group = several", "uneven"
    ),
    # what a start makes of what it finds
    "row-unchecked": Plant(
        (
            Edit(
                BROKER + "log.index",
                "if check == base ^ at ^ latest ^ SALT ^ start and base >= start and at >= 0 else None",
                "",
            ),
            Edit(BROKER + "log.index", "next(compress(count(), map(ne, sums, checks)), len(checks))", "len(checks)"),
            Edit(
                BROKER + "log.index",
                "        if check != base ^ at ^ latest ^ self._salt:\n            raise DamagedRow\n",
                "",
            ),
        ),
        ("misplaced",),
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
OF_ROOMS = {
    name: Plant(tuple(Edit(room.PACKAGE + module, old, new) for module, old, new in edits), room.KINDS)
    for room in ROOMS
    for name, edits in room.TABLE.items()
}
SHOWN_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("epoch-unchecked", "answer-before-markers", "zombie-epoch", "first-marker-only"), ("transactions",)
    ),
    **dict.fromkeys(("markers-forgotten", "aborted-unflushed", "aborted-unnamed"), ("transactions", "readers")),
    **dict.fromkeys(
        ("batch-unchecked", "row-unchecked", "dedup-four", "sent-again-appended", "snapshot-early"), ("producers",)
    ),
    "refusal-half-told": ("transactions", "committer"),
}
PLANTS = shown_by(USUAL | MENDED | OF_ROOMS, SHOWN_BY)
