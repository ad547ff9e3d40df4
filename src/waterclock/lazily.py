"""Public names that are imported on first use: who wants one of them does not pay for the others.

Rule 1: a compiled module that is older than the source beside it fails with an AttributeError while it is imported. Of that
        Python makes "cannot import name". Here it is an ImportError with the cause and the remedy.
Rule 2: a package of somebody else that is missing is named with what brings it and all else that the room needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def first_use(module: str, homes: Mapping[str, str], remedy: Callable[[], str] | None = None) -> Callable[[str], Any]:
    """The `__getattr__` of `module`, whose names stand in other modules: name -> module. ImportError if that one cannot be
    imported; `remedy` says what brings the packages that it needs."""

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
        except ModuleNotFoundError as error:  # rule 2
            package = (error.name or "").partition(".")[0]
            if remedy is None or package in ("", "waterclock"):
                raise
            raise ModuleNotFoundError(f"{package} is missing: {remedy()}", name=error.name) from None
        value = getattr(home, name)
        setattr(sys.modules[module], name, value)  # the next time it is found without us
        return value

    return found
