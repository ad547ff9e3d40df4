"""A pipeline's run without Spark, and what of its results two engines have alike."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from waterclock.local.command import configured
from waterclock.streaming.statistics import Summary
from waterclock.streaming.toml.config import load


def run_locally(file: Path, live: bool = False) -> Summary:
    with closing(configured(load(file))) as pipeline:
        return pipeline.run(live)


def kinds(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Results without batch and watermark, in an order of their own."""
    return sorted(tuple(map(str, (*row[1:5], *row[6:]))) for row in found)
