"""Lessons of order and duplicates, to be run: a real client, a real broker, and one fault on purpose each."""
