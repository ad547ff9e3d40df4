"""Folders of Parquet files as places for results."""
