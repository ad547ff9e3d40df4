"""The one door to what is outside of a process: files, threads, sockets, and what is random.

`broker`, `relay`, `cdc`, `kafka` and `disk` take these modules from here and nowhere else; `clock` is the same for time. In
production they are Python's own, so a call costs what it always did. `waterclock.simulation` puts its own in their place.

Rule 1: a module takes the name (`from waterclock.outside import os`), never a function out of it: the simulation replaces
    names of modules, and what was taken out of one before stays real.
"""

import builtins
import fcntl as fcntl
import os as os
import queue as queue
import secrets as secrets
import shutil as shutil
import socket as socket
import threading as threading
import uuid as uuid
from asyncio import open_connection as open_connection
from concurrent import futures as futures

BOOT = "/proc/sys/kernel/random/boot_id"
"""A file with the name of this start of the machine, where there is a Linux."""
open_file = builtins.open
"""`open`, as Python has it."""

DOORS = (
    "fcntl", "futures", "open_connection", "open_file", "os", "queue", "secrets", "shutil", "socket", "threading", "uuid",
)  # fmt: skip
"""What the simulation replaces."""
