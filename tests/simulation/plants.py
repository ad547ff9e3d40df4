"""Bugs planted in the broker's source as it is imported: what the simulation has to find. `python -m tests.simulation 1 500 --plant NAME`.

Each is (module, text that is there once, what stands there instead).
"""

import importlib.machinery
import importlib.util
import sys

B = "waterclock.broker."
PLANTS = {
    "ahead-unflushed": [(B + "log.write_ahead", "            os.fdatasync(self._files[self._half])\n", "            pass\n")],
    "file-unflushed": [(B + "log.segment", "        os.fdatasync(self.fd)\n        if not", "        if not")],
    "store-unflushed": [(B + "store.file", "            os.fdatasync(self._fd)\n        except", "            pass\n        except")],
    "folder-unflushed": [(B + "log.segment", "                flush_folder(folder)\n", "                pass\n")],
    "whole-unflushed": [("waterclock.disk", "        os.fsync(file.fileno())  # 2\n    # 3", "    # 3")],
    "half-unsettled": [(B + "log.write_ahead", "        _settle(self._unflushed[other])  # where", "        # where"),
                       (B + "log.write_ahead", "        _settle(unflushed)\n", "")],
    "end-at-the-end": [(B + "flusher", "self.partition.flushed_ahead(self.end, *self.files[0])",
                        "self.partition.flushed_ahead(self.partition.end, *self.files[0])"),
                       (B + "flusher", "self.partition.flushed(self.end, self.files)",
                        "self.partition.flushed(self.partition.end, self.files)")],
    "high-before-durable": [(B + "replication.replicas", "state, high = self._state(partition), partition.durable",
                             "state, high = self._state(partition), partition.end")],
    "epoch-unchecked": [(B + "transactions.verdicts",
                         "    if record.epoch != producer.epoch:\n        return Error.PRODUCER_FENCED\n    if busy", "    if busy"),
                        (B + "transactions.verdicts",
                         "    if record.epoch != producer.epoch or record.state in DECIDED:",
                         "    if record.state in DECIDED:")],
    "stable-forgotten": [(B + "log.partition", "        return self.high if first is None else max(self.start, min(first, self.high))",
                          "        return self.high")],
    "markers-forgotten": [(B + "transactions.restart",
                           "    marked = [p for p in coordinator.ending.partitions(record) if _concerns(record, p)]",
                           "    marked = []")],
    "answer-before-markers": [(B + "transactions.markers", "        self.wait(waits, durable)", "        durable()")],
    "offsets-without-transaction": [(B + "transactions.markers",
                                     "            if decided.commits:\n                self._groups.offsets.apply",
                                     "            if True:\n                self._groups.offsets.apply")],
    "row-unchecked": [(B + "log.index", "return (base, at, latest) if check == base ^ at ^ latest ^ SALT ^ start and base >= start and at >= 0 else None",
                       "return (base, at, latest)"),
                      (B + "log.index", "            next(compress(count(), map(ne, sums, checks)), len(checks)),\n", "            len(checks),\n")],
    "batch-unchecked": [(B + "log.scanning", "return batch.magic == 2 and follows and crc32c(data[CHECKED:]) == batch.crc",
                         "return batch.magic == 2 and follows")],
    "dedup-four": [(B + "log.producers", "KEPT: Final = 5", "KEPT: Final = 4")],
    "dedup-lost-at-start": [(B + "log.producers", "            for _ in range(count):\n                known.sent.append(SentBatch(*SENT.unpack_from(data, at)))",
                             "            for _ in range(count):\n                known.sent and known.sent.append(SentBatch(*SENT.unpack_from(data, at)))")],
    "aborted-unflushed": [(B + "log.snapshot", "                flush_file(path)\n        if rows", "                pass\n        if rows")],
    "snapshot-early": [(B + "log.partition", "if self._snapshot is not None and self._snapshot[0] <= self.durable:",
                        "if self._snapshot is not None:")],
    "refusal-half-told": [(B + "store.store", "            group = [commit for commit in several if commit.era > refused]",
                           "            group = several")],
    # not bugs, but what may mend two that are there: the seeds that show them pass with it
    "fix-cut": [(B + "log.truncation", "    _drop_snapshots(partition, end)\n    for segment in [s",
                 "    if end < partition.start:\n        return begin_anew(partition, end)\n"
                 "    _drop_snapshots(partition, end)\n    for segment in [s")],
    "fix-put-back": [(B + "log.replay", "                os.pwrite(fd, data, at)\n",
                      "                if os.pwrite(fd, data, at) != len(data):\n"
                      "                    raise OSError(28, 'no room', path)\n")],
}  # fmt: skip


class Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name, path, edits):
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname):
        text = self.get_data(self.path).decode()
        for old, new in self._edits:
            if text.count(old) != 1:
                raise SystemExit(f"plant: {old!r} stands {text.count(old)} times in {fullname}")
            text = text.replace(old, new)
        return compile(text, self.path, "exec")


class Finder:
    def __init__(self, edits):
        self._edits = edits

    def find_spec(self, name, path=None, target=None):
        edits = [(old, new) for module, old, new in self._edits if module == name]
        if not edits:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        spec.loader = Loader(name, spec.origin, edits)
        return spec


def plant(name):
    sys.meta_path.insert(0, Finder(PLANTS[name]))
