"""A store of objects behind a URI, where the checkpoint lies: what it took stays, whatever becomes of machines.

Rule 1: an object is there whole or not at all, and a list is of now, as on s3a.
Rule 2: each request is a system call: its process may be killed or stand still before it is done, and behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from waterclock.simulation.world import MS, US, world
from waterclock.streaming.places.hadoop import HadoopPath, ListedFile

CHECKPOINT = "s3a://simulated/checkpoint"
_SLOW = 200 * US, 20 * MS
objects: dict[str, tuple[bytes, int]] = {}  # of the present universe: what lies at a URI, and when it was written


def _request(name: str) -> None:
    world().breathe(name, 0.3, *_SLOW)


class StoredPlace(HadoopPath):
    """A `HadoopPath` without Hadoop."""

    def __truediv__(self, name: str) -> StoredPlace:
        return StoredPlace(f"{self.uri}/{name}")

    @property
    def parent(self) -> StoredPlace:
        return StoredPlace(self.uri.rpartition("/")[0])

    @property
    def parents(self) -> tuple[Any, ...]:
        return (self.parent,)

    def exists(self) -> bool:
        _request("look")
        return self.uri in objects or self._is_folder()

    def is_dir(self) -> bool:
        _request("look")
        return self._is_folder()

    def _is_folder(self) -> bool:
        return any(uri.startswith(f"{self.uri}/") for uri in objects)

    def entries(self) -> list[ListedFile]:
        _request("list")
        found: dict[str, ListedFile] = {}
        for uri, (_, ms) in objects.items():
            name, *more = uri.removeprefix(f"{self.uri}/").split("/")
            if uri.startswith(f"{self.uri}/"):
                found[name] = ListedFile(name, bool(more), ms)
        if not found:
            raise FileNotFoundError(self.uri)
        return sorted(found.values(), key=lambda each: each.name)

    def iterdir(self) -> Iterator[Any]:
        return (self / entry.name for entry in self.entries())

    def written_ms(self) -> int:
        return self._object()[1]

    def read_bytes(self) -> bytes:
        return self._object()[0]

    def _object(self) -> tuple[bytes, int]:
        _request("get")
        if self.uri not in objects:
            raise FileNotFoundError(self.uri)
        return objects[self.uri]

    def make_folder(self) -> None:
        """There are none."""

    def write_whole(self, data: bytes) -> None:
        _request("put")
        objects[self.uri] = bytes(data), world().now // MS
        _request("put done")

    def create_new(self, data: bytes) -> bool:
        _request("put")
        made = self.uri not in objects
        if made:
            objects[self.uri] = bytes(data), world().now // MS
        _request("put done")
        return made

    def remove(self, within: bool = True) -> None:
        _request("delete")
        for uri in [uri for uri in objects if uri == self.uri or (within and uri.startswith(f"{self.uri}/"))]:
            del objects[uri]
