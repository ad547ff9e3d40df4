"""Where a test's blobs lie: a dict that is written once under each number, and counts what is done to it."""


class Disk(dict[int, bytes]):
    calls = 0

    def __getitem__(self, number: int) -> bytes:
        self.calls += 1
        return super().__getitem__(number)

    def __setitem__(self, number: int, blob: bytes) -> None:
        assert number not in self
        self.calls += 1
        super().__setitem__(number, blob)

    def __delitem__(self, number: int) -> None:
        self.calls += 1
        super().__delitem__(number)

    def size(self) -> int:
        return sum(map(len, self.values()))
