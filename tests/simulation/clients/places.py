"""The topics of the log's workload."""

PLAIN = [("log", 0), ("log", 1), ("log", 2)]
INPUT, OUTPUT = ("in", 0), ("out", 0)
