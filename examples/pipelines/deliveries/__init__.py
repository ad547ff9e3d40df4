"""Parcels that were not delivered in time: gzipped CSV with German times, joined with a table of shops."""
