"""Damaged files: what acknowledged messages are lost afterwards, and who says so."""
