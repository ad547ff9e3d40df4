"""What counts memory, files or threads has a process of its own: other tests leave theirs in the one that runs them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def alone(deed: Callable[..., Any], *arguments: Any) -> Any:
    """What `deed`, a function of a module, gives back there; what it raises there is raised here."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(deed, *arguments).result()
