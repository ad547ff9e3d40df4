"""Lessons, to be run: a real client, a real broker, and something that goes wrong on purpose, or is slow."""
