"""What one broker answers always alike: there is nothing to elect, there are no quotas, and no partition moves.

A follower takes over at an election: follower.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from waterclock.broker.api.table import Api
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.topics import Topics

ELECT_LEADERS: Final = 43
LIST_REASSIGNMENTS: Final = 46
DESCRIBE_QUOTAS: Final = 48
NOTHING_THERE: Final = {
    LIST_REASSIGNMENTS: Api(lambda r: r.answer(error_code=Error.NONE, error_message=None, topics=()), 0, 0),
    DESCRIBE_QUOTAS: Api(lambda r: r.answer(error_code=Error.NONE, error_message="", entries=()), 0, 1),
}


class SingleBrokerApis:
    """ElectLeaders, ListPartitionReassignments and DescribeClientQuotas of a leader: its partitions are led already."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def apis(self) -> dict[int, Api]:
        return {ELECT_LEADERS: Api(self.elect, 0, 2), **NOTHING_THERE}

    def elect(self, request: Request) -> None:
        def result(topic: str, number: int) -> Error:
            there = self._topics.partition(topic, number) is not None
            return Error.ELECTION_NOT_NEEDED if there else Error.UNKNOWN_TOPIC_OR_PARTITION

        answer_election(request, result)


def answer_election(request: Request, result: Callable[[str, int], Error], error: Error = Error.NONE) -> None:
    """Answer for each partition that was named `result(topic, number)`; if all were meant, `error` alone."""
    rows = []
    for requested in request.body.topic_partitions or ():
        found = [(number, result(requested.topic, number)) for number in requested.partitions]
        results = tuple(
            request.make(
                "PartitionResult", partition_id=number, error_code=one, error_message=one.name if one else None
            )
            for number, one in found
        )
        rows.append(request.make("ReplicaElectionResult", topic=requested.topic, partition_result=results))
    request.answer(error_code=error, replica_election_results=tuple(rows))
