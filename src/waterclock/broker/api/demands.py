"""What a request as a whole takes, if there is an authorizer: API -> operation on a resource, and the error without.

Rule 1: who may not is refused before the handler is called, so that the answer gives nothing away.
Rule 2: if an answer has topics, groups or transactions of which some may be refused, its handler asks about each:
    `Request.may`, and in Produce and Fetch the connection's rights.
Source: the table of operations in the chapter on authorization of Apache Kafka's documentation.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from waterclock.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from waterclock.broker.security.authorizer import EVERYTHING
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error
from waterclock.broker.wire.refusal import refuse

ADD_PARTITIONS: Final = 24
INIT_PRODUCER: Final = 22
FROM_BROKERS: Final = 4  # AddPartitionsToTxn, from this version on
# answers whose rows Kafka leaves out if the whole is refused
ROWS: Final = {13: "members", ADD_PARTITIONS: "results_by_transaction", 35: "results", 47: "topics"}


class Demand(NamedTuple):
    """An operation on a resource: on the cluster, or on what a field of the request names."""

    operation: Operation
    resource_type: ResourceType = ResourceType.CLUSTER
    field: str | None = None


ERRORS: Final = {
    ResourceType.TOPIC: Error.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: Error.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: Error.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
READS_GROUP: Final = Demand(Operation.READ, ResourceType.GROUP, "group_id")
WRITES: Final = Demand(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id")
WRITES_OF_OLD: Final = WRITES._replace(field="v3_and_below_transactional_id")
DESCRIBES: Final = Demand(Operation.DESCRIBE)
ALTERS: Final = Demand(Operation.ALTER)
DEMANDS: Final[dict[int, tuple[Demand, ...]]] = {
    8: (READS_GROUP,),  # OffsetCommit
    11: (READS_GROUP,),  # JoinGroup
    12: (READS_GROUP,),  # Heartbeat
    13: (READS_GROUP,),  # LeaveGroup
    14: (READS_GROUP,),  # SyncGroup
    INIT_PRODUCER: (WRITES,),
    25: (WRITES, READS_GROUP),  # AddOffsetsToTxn
    26: (WRITES,),  # EndTxn
    28: (WRITES, READS_GROUP),  # TxnOffsetCommit
    29: (DESCRIBES,),  # DescribeAcls
    30: (ALTERS,),  # CreateAcls
    31: (ALTERS,),  # DeleteAcls
    35: (DESCRIBES,),  # DescribeLogDirs
    43: (ALTERS,),  # ElectLeaders
    46: (DESCRIBES,),  # ListPartitionReassignments
    47: (Demand(Operation.DELETE, ResourceType.GROUP, "group_id"),),  # OffsetDelete
    48: (Demand(Operation.DESCRIBE_CONFIGS),),  # DescribeClientQuotas
    50: (DESCRIBES,),  # DescribeUserScramCredentials
    51: (ALTERS,),  # AlterUserScramCredentials
    58: (Demand(Operation.CLUSTER_ACTION),),  # Envelope
    68: (READS_GROUP,),  # ConsumerGroupHeartbeat
    74: (Demand(Operation.DESCRIBE_CONFIGS),),  # ListConfigResources
}


def refusal(request: Request) -> Error | None:
    """Why the whole request is refused; None if it is not."""
    if request.key == INIT_PRODUCER and request.body.transactional_id is None:
        # who may write to any topic may have a producer's id. KIP-679
        writes = request.may(Operation.WRITE, ResourceType.TOPIC, None)
        may = writes or may_with_cluster(request, Operation.IDEMPOTENT_WRITE)
        return None if may else Error.CLUSTER_AUTHORIZATION_FAILED
    demands = DEMANDS.get(request.key, ())
    if request.key == ADD_PARTITIONS:
        demands = (Demand(Operation.CLUSTER_ACTION),) if request.version >= FROM_BROKERS else (WRITES_OF_OLD,)
    for one in demands:
        name = CLUSTER_NAME if one.field is None else getattr(request.body, one.field)
        if not request.may(one.operation, one.resource_type, name):
            return ERRORS[one.resource_type]
    return None


def refuse_whole(request: Request, error: Error) -> None:
    """Answer `error` as Kafka does for a whole request."""
    rows = ROWS.get(request.key)
    if rows is None or (request.key == ADD_PARTITIONS and request.version < FROM_BROKERS):
        refuse(request, error)
    else:
        request.answer(error_code=error, **{rows: ()})


def may_with_cluster(request: Request, operation: Operation) -> bool:
    """Whether the client may do that to the cluster."""
    return request.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def may_with_topic(request: Request, operation: Operation, name: str) -> bool:
    return request.may(operation, ResourceType.TOPIC, name)


def may_with_group(request: Request, operation: Operation, group_id: str) -> bool:
    return request.may(operation, ResourceType.GROUP, group_id)


def operations(request: Request, resource_type: ResourceType, name: str) -> int:
    """All that the client may do to a resource, one bit for each operation."""
    if request.rights is None:
        return EVERYTHING[resource_type]
    return request.rights.operations(resource_type, name)


def operations_with_cluster(request: Request) -> int:
    """All that the client may do to the cluster, if it may look at it."""
    if not may_with_cluster(request, Operation.DESCRIBE):
        return 0
    return operations(request, ResourceType.CLUSTER, CLUSTER_NAME)
