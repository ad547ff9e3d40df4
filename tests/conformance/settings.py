"""Settings of the shared broker, the same for both kinds, and the differences that are wanted.

Times that a test waits for are short here; nothing else differs from Kafka's defaults.
"""

from __future__ import annotations

SETTINGS = {
    "log.retention.ms": "-1",  # old timestamps are in use everywhere; tests of retention set their topic's own
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "socket.request.max.bytes": "4194304",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "300",
    "group.consumer.min.session.timeout.ms": "300",
    "group.consumer.session.timeout.ms": "3000",  # a second passed on a busy machine between two requests
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "offsets.retention.check.interval.ms": "1000",
}

# test -> why our broker answers otherwise, one sentence each; such a test must fail on ours
NOT_DECODED = "records are never decoded on their way: what a producer packed is kept and handed on as it came"
ZOMBIE = "a producer that was replaced under its transactional id is shut out, whatever it asks"
DIFFERENCES: dict[str, str] = {
    "test_a_count_that_is_not_the_records_is_refused": NOT_DECODED,
    "test_compressed_bytes_that_are_none_are_refused": NOT_DECODED,
    "test_a_topic_with_a_compression_of_its_own_keeps_its_batches_in_it": NOT_DECODED,
    "test_a_topic_without_compression_takes_it_off": NOT_DECODED,
    "test_the_highest_timestamp_of_a_batch_is_counted_by_the_broker": NOT_DECODED,
    "test_a_replaced_producer_of_the_new_protocol_is_given_the_epoch_of_its_successor_of_the_old_one": ZOMBIE,
    "test_a_claim_with_an_older_epoch_aborts_what_the_successor_has_open": ZOMBIE,
}
