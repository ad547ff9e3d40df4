"""Sensors that fell silent: nested JSON without a sequence number."""
