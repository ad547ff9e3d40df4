"""The member of the group, and what a relay asks of its Kafka: targets, retention, whether the topics are the same."""
