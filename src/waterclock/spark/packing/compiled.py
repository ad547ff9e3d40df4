"""Which of waterclock's compiled modules this Python cannot load: on an executor, they came from the driver's machine.

Rule 1: nothing depends on it but the speed: where a compiled module is not loaded, the plain one gives the same results.
Rule 2: it is said, once a run of the driver, with both platforms: an executor's own log is read by nobody.
"""

from __future__ import annotations

import logging
import platform
import sys
from functools import cache
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import waterclock.errors

log = logging.getLogger(__name__)
_PACKAGE = Path(waterclock.errors.__file__).parent


@cache
def refused_here() -> str:
    """How many modules lie in waterclock's folder and cannot be loaded, and why; "" where there is none."""
    found: dict[Path, str] = {}  # a module may lie there for several Pythons
    for path in sorted(_PACKAGE.rglob("*.cpython-*.so")):
        module = path.with_name(path.name.partition(".")[0])
        if found.get(module) != "":
            found[module] = _refusal(path)
    refused = {module: why for module, why in found.items() if why}
    if not refused:
        return ""
    module, why = next(iter(refused.items()))
    here = f"CPython {platform.python_version()} on {sys.platform}, {platform.machine()}"
    return f"{len(refused)} of {len(found)} compiled modules on {here}, such as {module.name}: {why}"


@cache
def tell(refused: str) -> None:
    """Log what an executor said by `refused_here`, once."""
    log.warning(
        "executors cannot load %s. They take plain Python in its place: the same results, more slowly. Start the pipeline "
        "from a machine like theirs, or give them a Python like the driver's",
        refused,
    )


def _refusal(path: Path) -> str:
    name, _, suffix = path.name.partition(".")
    if f".{suffix}" not in EXTENSION_SUFFIXES:
        return "it was compiled for another platform or Python"
    try:
        import_module(".".join(["waterclock", *path.parent.relative_to(_PACKAGE).parts, name]))
    except ImportError as error:
        return str(error)
    return ""
