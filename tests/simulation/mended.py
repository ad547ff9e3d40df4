"""Bugs that the broker had once, and that were mended: planted anew, they have to be found. `--plant NAME`, `ledger`."""

from __future__ import annotations

from tests.simulation.plant import BROKER, Plant, one
from tests.simulation.planting import Edit

REMOVED = """shutil.rmtree(left.pop(), ignore_errors=True)
            if not left:
                flush_folder(self._folder)
"""
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
    "topic-back": Plant(
        (
            Edit(
                BROKER + "folder.making",
                REMOVED,
                REMOVED.replace("                flush_folder(self._folder)", "                pass"),
            ),
            Edit(
                BROKER + "folder.inventory",
                "            flush_folder(self._folder)  # before",
                "            pass  # before",
            ),
        ),
        workloads=("lives",),
    ),
    "start-after-its-files": Plant(
        (
            Edit(
                BROKER + "upkeep",
                "        self.worker.do(partial(partition.memo.save, offset), kept)\n",
                "        kept(None)\n",
            ),
        ),
        workloads=("retention",),
    ),
    "scrub-ends-at-a-cut": Plant(
        (
            Edit(
                BROKER + "upkeep",
                "                continue  # it may have none: it was cut meanwhile, and another has its place\n",
                "",
            ),
        ),
        kinds=("pair",),
    ),
    "start-told-before-it-lasts": Plant(
        (
            Edit(
                BROKER + "upkeep",
                "            if error is None and partition.start < offset:\n",
                "            if partition.start < offset:\n",
            ),
        ),
        workloads=("retention",),
    ),
    "unseen-counted": Plant(
        (Edit(BROKER + "log.removal", "partition.bytes_before(partition.high, segment)", "segment.size"),),
        workloads=("retention",),
        kinds=("pair",),
    ),
    "row-stays": one("log.segment", "        self.index.forget(size)\n", ""),
    "aborted-unnamed": one("api.fetch", "aborted = partition.aborted.between(wanted.offset, upto)", "aborted = []"),
    "deletion-alone": Plant(
        (
            Edit(
                BROKER + "replication.replicas",
                "return state is None or state.start >= offset or not (state.in_sync or self.refused(partition))",
                "return True",
            ),
        ),
        ("pair",),
        ("deletions",),
    ),
    "snapshot-behind-the-end": one(
        "log.removal", "    snapshot.drop_after(partition.folder, end, names)\n", "", "pair"
    ),
    "journal-undone": one(
        "follower",
        "        await self.replica.catch_up()\n        await self.replica.flush()",
        "        await self.replica.flush()",
        "pair",
    ),
    "right-unstored": Plant(
        (
            Edit(
                BROKER + "security.authorizer",
                "self._store.commit([Entry(NAMESPACE, acl.key(), value) for acl in acls], kept)",
                "self._store.commit([Entry(NAMESPACE, acl.key(), value) for acl in acls if wanted], kept)",
            ),
        ),
        workloads=("rights",),
    ),
    "given-twice": Plant(
        (
            Edit(
                BROKER + "groups.consumer",
                "after = reconcile(member, self.target_epoch, target, self.free, has)",
                "after = reconcile(member, self.target_epoch, target, lambda part: True, has)",
            ),
        ),
        workloads=("groups",),
    ),
    "store-sum-unlooked": one(
        "store.file",
        "return (start + length, number) if summed == checksum else (0, 0)",
        "return (start + length, number)",
        "damaged",
    ),
    "snapshot-sum-unlooked": one(
        "log.snapshot",
        "if form == FORM and crc == _checksum(offset, raw[head:], folder):",
        "if form == FORM:",
        "damaged",
    ),
    "confirmed-alone": one(
        "transactions.restart",
        "    when_loaded(lambda: _settle(coordinator, list(partitions())))\n",
        "    _settle(coordinator, list(partitions()))\n",
        "pair",
    ),
    "told-of-before-it-lasts": Plant(
        (
            Edit(
                BROKER + "api.topics",
                "None if refusal in (None, TWICE, FORBIDDEN) else self._topics.waiting_for(*named)",
                "None",
            ),
        ),
        kinds=("pair",),
        workloads=("rules",),
    ),
    "timeout-by-the-date": one(
        "transactions.ledger", "min(left_ms, record.timeout_ms) / 1000", "left_ms / 1000", "rules", workloads=("rules",)
    ),
    "first-refusal-alone": one(
        "log.producers",
        "(self.sequence - sequence) % SEQUENCES < SEQUENCES // 2",
        "self.sequence == sequence",
        "pair",
        workloads=("producers", "transactions", "readers"),
    ),
    "alone-shown": Plant(
        (
            Edit(
                BROKER + "replication.leader",
                "    self._highs.restore(partition)\n                    self.replicas.lead",
                "    self.replicas.lead",
            ),
            Edit(BROKER + "replication.replica", "            self._highs.restore(partition)\n", "            pass\n"),
        ),
        ("pair",),
        ("producers", "transactions", "readers"),
    ),
    "store-read-unflushed": one(
        "store.file",
        "        else:\n            os.fdatasync(self._fd)",
        "        else:\n            pass",
        workloads=("transform",),
    ),
    "half-a-batch-stays": one(
        "log.partition",
        "        closed.close()\n",
        "",
        workloads=("retention", "readers"),
    ),
    "index-alone-stays": Plant(
        (
            Edit(BROKER + "log.segment", "        self._removed = True\n", "        pass\n"),
            Edit(BROKER + "log.removal", "            os.unlink(path)\n", "            pass\n"),
        ),
        ("pair",),
    ),
    "gap-before-a-start": one(
        "log.recovery", "max(self._proved, self._partition.start)", "self._proved", workloads=("retention",)
    ),
    "dedup-one-compacted": one(
        "log.compaction",
        "last.ends[-1:] if batch.transactional else last.ends",
        "last.ends[-1:]",
        workloads=("compaction",),
    ),
    "begun-told-as-damage": one("log.replay", "begun = before + 1 == frame.first < frames[-1].first", "begun = False"),
    "removed-told-as-missing": one("log.replay", ' if path.rpartition(".")[2] not in removed}', "}")._replace(
        workloads=("lives",)
    ),
}
