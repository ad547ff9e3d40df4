"""Bugs that the broker had once, and that were mended: planted anew, they have to be found. `--plant NAME`, `ledger`."""

from __future__ import annotations

from tests.simulation.plant import BROKER, Plant, one
from tests.simulation.planting import Edit

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
    )._replace(kinds=("mixed",)),
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
                BROKER + "log.removal",
                "        segment.delete()\n        partition.segments.remove(segment)\n",
                "        if segment is not partition.segments[0]:\n"
                "            segment.delete()\n            partition.segments.remove(segment)\n",
            ),
            Edit(BROKER + "log.memo", "or [(0, end)]", "or [self.epochs[0]]"),
            Edit(
                BROKER + "api.fetch",
                "end = partition.durable if self._request.replica >= 0 else partition.end",
                "end = partition.end",
            ),
            Edit(
                BROKER + "replication.replicas", "if state is None or offset > partition.durable:", "if state is None:"
            ),
            Edit(
                BROKER + "replication.fetcher",
                "while partition.end > partition.memo.epochs[0][1]:",
                "while partition.end > partition.start:",
            ),
            Edit(
                BROKER + "replication.fetcher",
                "                return max(end, 0)",
                "                return max(end, partition.start)",
            ),
            Edit(
                BROKER + "replication.fetcher", "                return 0\n", "                return partition.start\n"
            ),
        ),
        ("pair",),
    ),
    "promotion-cut-short": Plant(
        (
            Edit(
                BROKER + "follower",
                "        await self._loop.run_in_executor(None, self.replica.begin, epoch)  # 4\n",
                "",
            ),
            Edit(
                BROKER + "follower",
                '        await self.replica.keep(Entry("self", key, value) for key, value in known.items())  # 3\n',
                "        await self._loop.run_in_executor(None, self.replica.begin, epoch)\n"
                '        await self.replica.keep(Entry("self", key, value) for key, value in known.items())  # 3\n',
            ),
        ),
        ("pair",),
    ),
    "promotion-unfinished": one(
        "core", "            begin_epoch([*self.topics.partitions(), journal], epoch)\n", "            pass\n"
    )._replace(kinds=("pair",)),
    "high-without-follower": one(
        "replication.replicas", "            high = min(high, state.end)\n", "            pass\n"
    )._replace(kinds=("pair",)),
    "journal-alone": one(
        "replication.replicas",
        'return min(int(self._settings["min.insync.replicas"]), len(self.all())) > 1',
        "return False",
    )._replace(kinds=("pair",)),
    "copied-not-remembered": one(
        "replication.replica",
        'await self.keep([Entry("self", known, self._read)])',
        "pass",
    )._replace(kinds=("pair",)),
}
