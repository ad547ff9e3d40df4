"""Numbers of a running command over HTTP: for Prometheus, and as JSON. What the numbers are, each room knows itself.

record.py    how a field of a record is shown; Prometheus's page and the JSON that are made of it
server.py    a small server of routes
option.py    `--metrics PORT`, of every long-running command
console/     a live page of what processes say
top/         the same in a terminal
program.py   `serve`: the same page of a program's own timers and purgatories
"""

from typing import TYPE_CHECKING

from waterclock.lazily import first_use

if TYPE_CHECKING:
    from waterclock.web.program import serve

__all__ = ["serve"]

__getattr__ = first_use(__name__, {"serve": "waterclock.web.program"})
