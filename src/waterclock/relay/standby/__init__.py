"""Files of partitions that others own, kept ready."""
