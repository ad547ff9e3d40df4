"""Debezium's form of a change, written."""
