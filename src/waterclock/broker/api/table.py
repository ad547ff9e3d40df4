"""From a request's first bytes to its handler: one table, API key -> handler and versions; and who may make the request.

Rule 1: what the table says is what ApiVersions answers, but for what brokers alone ask each other.
Rule 2: with an authorizer, what a request as a whole takes (DEMANDS: API -> operation on a resource) is checked before its
    handler is called: a refusal gives nothing away.
Rule 3: if an answer has topics, groups or transactions of which some may be refused, its handler checks each:
    `Request.may`, and in Produce and Fetch the connection's rights.
Rule 4: an API or a version that is not in the table closes the connection, as Kafka does: ApiVersions says what there is.
Source: the table of operations in the chapter on authorization of Apache Kafka's documentation.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waterclock.broker.api.waiting import ERRORS, LOADED, Overdue
from waterclock.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from waterclock.broker.security.authorizer import EVERYTHING
from waterclock.broker.wire.answers import refuse
from waterclock.broker.wire.codec import API_VERSIONS, NAMES, ClientRights, Request, unsupported
from waterclock.broker.wire.errors import Error
from waterclock.broker.wire.fields import skip_tags, text_span

if TYPE_CHECKING:
    from waterclock.broker.net.connection import Connection
    from waterclock.broker.net.outgoing import ClientConnection, Slot

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


DENIED: Final = {
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
            return DENIED[one.resource_type]
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


HEAD: Final = struct.Struct(">hhih")
FEATURES: Final = {"transaction.version": 2}  # name -> level, always switched on
AMONG_BROKERS: Final = {58}  # Envelope, which clients do not see
ANNOUNCED: Final = {0: 0}  # clients of old would take the lowest version of Produce for the log's format
CLIENT_NAMED: Final = 3  # from here on ApiVersions says what client it is
SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
FIRST_FLEXIBLE: Final = {0: 9, 1: 12}  # of the APIs that are read by hand


class Api(NamedTuple):
    """An API that kio reads: its handler, and the versions that it knows."""

    handle: Callable[[Request], Any]
    lowest: int
    highest: int


class FastApi(NamedTuple):
    """An API read by hand: `handle(slot, data, at, version, correlation)`, the body at byte `at` of `data`."""

    handle: Callable[[Connection, memoryview, int, int, int], Any]
    lowest: int
    highest: int


def _without_tags(data: bytes) -> bytes:
    """An ApiVersions request as far as it is known here: a newer client may say more, in tagged fields. KIP-511."""
    at = skip_tags(data, 0)
    for _ in range(2):
        at = text_span(data, at, True)[1]
    skip_tags(data, at)
    return data[:at] + b"\0"


class ApiTable:
    """Serves requests: `Listener` calls it with each. `rights` says what a client may do, unless everybody may everything.

    Produce and Fetch ask for themselves.
    """

    def __init__(
        self,
        fast: Mapping[int, FastApi],
        apis: Mapping[int, Api],
        rights: Callable[[ClientConnection], ClientRights] | None = None,
    ) -> None:
        self._fast = dict(fast)
        self._apis = {**apis, API_VERSIONS: Api(self._api_versions, 0, 4)}
        self._rights = rights
        self.served = dict.fromkeys([*self._fast, *self._apis], 0)  # requests, by API key
        self.intercept: Callable[[Connection, int, int, int, memoryview], bool] | None = None
        """Sees each request first, with the arguments of `serve`; True: it has dealt with it."""
        self.overdue: Overdue | None = None
        """Is shown the requests that wait for the store."""
        self.loading: Callable[[], bool] = bool
        """Whether coordinators have to wait: see Rule 6 of replication/leader.py."""
        self.keeps: Callable[[Connection, int, memoryview], bool] | None = None
        """Sees each request, with its key and all of it; True: it must not be served now (a leader's lease)."""

    def __call__(self, connection: Connection, data: memoryview) -> None:
        """Serve one request."""
        key, version, correlation, size = HEAD.unpack_from(data)
        if key not in self._fast:
            connection.client_id = str(data[10 : 10 + max(size, 0)], "utf-8")
        if self.keeps is not None and self.keeps(connection, key, data):
            return
        if key in self.served:
            self.served[key] += 1
        body = data[10 + max(size, 0) :]
        if self.intercept is not None and self.intercept(connection, key, version, correlation, body):
            return
        self.serve(connection, key, version, correlation, body)

    def serve(self, connection: Connection, key: int, version: int, correlation: int, data: memoryview) -> None:
        """Serve a request whose header ends before `data`, its tagged fields aside."""
        fast = self._fast.get(key)
        if fast is not None and fast.lowest <= version <= fast.highest:
            at = skip_tags(data, 0) if version >= FIRST_FLEXIBLE[key] else 0
            fast.handle(connection, data, at, version, correlation)
            return
        slot = connection.slot()
        if key == API_VERSIONS and version > self._apis[key].highest:
            slot.answer([unsupported(correlation, self.ranges())])
            return
        self._slow(slot, key, version, correlation, bytes(data))

    def _slow(self, slot: Slot, key: int, version: int, correlation: int, data: bytes) -> None:
        api = self._apis.get(key)
        if api is None or not api.lowest <= version <= api.highest:
            raise ValueError(f"API {key} in version {version} is not known here")
        known = _without_tags(data) if key == API_VERSIONS and version >= CLIENT_NAMED else data
        request = Request(key, version, correlation, slot, known)
        if self._rights is not None:
            request.rights = self._rights(slot.connection)
        self.handle(request)

    def handle(self, request: Request) -> None:
        """Serve a request of an API in the table, whose client's rights it has."""
        if request.rights is not None and (error := refusal(request)) is not None:
            refuse_whole(request, error)
        elif request.key in LOADED and self.loading():
            refuse_whole(request, Error.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            self._apis[request.key].handle(request)
            if self.overdue is not None and request.key in ERRORS and request.slot.parts is None:
                self.overdue.watch(request)

    def requests(self) -> dict[str, int]:
        """Requests served so far, by Kafka's name of the API; what nobody used is left out."""
        return {NAMES.get(key, str(key)): count for key, count in sorted(self.served.items()) if count}

    def ranges(self) -> list[tuple[int, int, int]]:
        """(key, lowest version, highest version) of every API that clients see."""
        rows: list[tuple[int, Api | FastApi]] = [*self._fast.items(), *self._apis.items()]
        shown = [(key, api) for key, api in rows if key not in AMONG_BROKERS]
        return sorted((key, ANNOUNCED.get(key, api.lowest), api.highest) for key, api in shown)

    def _api_versions(self, request: Request) -> None:
        named = (getattr(request.body, name, "x") for name in ("client_software_name", "client_software_version"))
        if not all(SOFTWARE.fullmatch(name) for name in named):
            request.answer(error_code=Error.INVALID_REQUEST, api_keys=())
            return
        keys = tuple(
            request.make("ApiVersion", api_key=key, min_version=lowest, max_version=highest)
            for key, lowest, highest in self.ranges()
        )
        least = 1 if request.version < 4 else 0  # KIP-584: older clients take 0 for a mistake
        supported = tuple(
            request.make("SupportedFeatureKey", name=name, min_version=0, max_version=level)
            for name, level in FEATURES.items()
            if request.has("SupportedFeatureKey") and not least
        )
        finalized = tuple(
            request.make("FinalizedFeatureKey", name=name, max_version_level=level, min_version_level=level)
            for name, level in FEATURES.items()
            if request.has("FinalizedFeatureKey")
        )
        request.answer(
            error_code=Error.NONE, api_keys=keys, supported_features=supported, finalized_features_epoch=1,
            finalized_features=finalized,
        )  # fmt: skip
