"""One suite of Kafka's behaviours over two brokers: where they differ, Apache Kafka is right."""
