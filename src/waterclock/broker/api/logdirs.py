"""DescribeLogDirs: how much of the disk each partition takes. There is one folder. KIP-113, KIP-827 (room on the disk)."""

from __future__ import annotations

import os
from typing import Any, Final

from waterclock.broker.api.table import Api
from waterclock.broker.log.partition import Partition
from waterclock.broker.topics import Topics
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

DESCRIBE: Final = 35


class LogDirApis:
    """DescribeLogDirs, of the data folder `folder`."""

    def __init__(self, folder: str, topics: Topics) -> None:
        self._folder, self._topics = os.path.abspath(folder), topics

    def apis(self) -> dict[int, Api]:
        return {DESCRIBE: Api(self.describe, 1, 5)}

    def describe(self, request: Request) -> None:
        disk = os.statvfs(self._folder)
        if request.body.topics is None:
            wanted = [(topic.name, topic.partitions) for topic in self._topics]
        else:
            at = self._topics.partition
            found = ((one.topic, [at(one.topic, number) for number in one.partitions]) for one in request.body.topics)
            wanted = [(name, [one for one in partitions if one is not None]) for name, partitions in found]
        rows = tuple(self._topic(request, name, partitions) for name, partitions in wanted if partitions)
        folder = request.make(
            "DescribeLogDirsResult", error_code=Error.NONE, log_dir=self._folder, topics=rows,
            total_bytes=disk.f_frsize * disk.f_blocks, usable_bytes=disk.f_frsize * disk.f_bavail, is_cordoned=False,
        )  # fmt: skip
        request.answer(error_code=Error.NONE, results=(folder,))

    def _topic(self, request: Request, name: str, partitions: list[Partition]) -> Any:
        rows = tuple(
            request.make(
                "DescribeLogDirsPartition", partition_index=partition.number, offset_lag=0, is_future_key=False,
                partition_size=sum(segment.size for segment in partition.segments),
            )
            for partition in partitions
        )  # fmt: skip
        return request.make("DescribeLogDirsTopic", name=name, partitions=rows)
