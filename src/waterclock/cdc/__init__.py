"""Change data capture: what a database commits, in order, exactly once into Kafka.

Rule 1: importing this needs nothing outside the standard library; the command's own modules need the extra `cdc`.
"""
