"""ElectLeaders, at the leader: there is nothing to elect. A follower that is asked for it takes over: follower.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.table import Api
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.topics import Topics

ELECT_LEADERS: Final = 43


class ElectionApis:
    """Every partition that is there has its leader already."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def apis(self) -> dict[int, Api]:
        return {ELECT_LEADERS: Api(self.elect, 0, 2)}

    def elect(self, request: Request) -> None:
        answer_election(request, self._result)

    def _result(self, topic: str, number: int) -> Error:
        there = self._topics.partition(topic, number) is not None
        return Error.ELECTION_NOT_NEEDED if there else Error.UNKNOWN_TOPIC_OR_PARTITION


def answer_election(request: Request, result: Callable[[str, int], Error], error: Error = Error.NONE) -> None:
    """Answer for each partition that was named `result(topic, number)`; where all were meant, `error` alone."""
    rows = []
    for requested in request.body.topic_partitions or ():
        results = tuple(_row(request, number, result(requested.topic, number)) for number in requested.partitions)
        rows.append(request.make("ReplicaElectionResult", topic=requested.topic, partition_result=results))
    request.answer(error_code=error, replica_election_results=tuple(rows))


def _row(request: Request, number: int, error: Error) -> Any:
    message = None if not error else error.name
    return request.make("PartitionResult", partition_id=number, error_code=error, error_message=message)
