"""A topic of Kafka as a place for results."""
