"""`Kafka`: all requests, on a connection that is made anew when it is gone."""

from __future__ import annotations

from tests.simulation.kafka.admin import AdminRequests
from tests.simulation.kafka.groups import GroupRequests
from tests.simulation.kafka.records import RecordRequests
from tests.simulation.kafka.transactions import TransactionRequests


class Kafka(RecordRequests, TransactionRequests, GroupRequests, AdminRequests):
    """What a client asks. Answers with one error have it first; no method asks twice."""
