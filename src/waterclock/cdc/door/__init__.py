"""The Python door: a database's changes as batches, without Kafka, and stores for the position that the caller commits."""
