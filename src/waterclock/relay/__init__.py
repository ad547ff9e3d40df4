"""Delayed messages: an owner of input partitions, its files of what is pending, and what is due soon in a timing wheel."""
