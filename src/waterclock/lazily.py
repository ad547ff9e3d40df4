"""Public names that are imported on first use: who wants one of them does not pay for the others.

Rule 1: a compiled module that is older than the source beside it fails with an AttributeError while it is imported. Of that
        Python makes "cannot import name". Here it is an ImportError with the cause and the remedy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def first_use(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of `module`, whose names stand in other modules: name -> module. ImportError if that one cannot be
    imported."""

    def found(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            home = import_module(homes[name])
        except AttributeError as error:  # rule 1
            raise ImportError(
                f"{homes[name]} cannot be imported ({error}): its compiled modules are older than the source beside them: "
                "run `make`, or install waterclock again."
            ) from error
        value = getattr(home, name)
        setattr(sys.modules[module], name, value)  # the next time it is found without us
        return value

    return found
