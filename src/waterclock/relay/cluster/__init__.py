"""What a relay asks its Kafka: the group, the topics, targets, retention, where to begin."""
