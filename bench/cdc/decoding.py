"""mysql-replication alone, in a process of its own: all rows of the binlogs decoded, nothing produced.

python -m waterclock.bench.cdc.decoding PORT
"""

from __future__ import annotations

import json
import sys
import time

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from waterclock.examples.cdc.shop import DATABASE

FIRST = "binlog.000001"  # MariaDB's first file, which begins behind the four bytes of its name


def decoded(port: int) -> int:
    """How many rows the binlogs of the server have, each of them decoded.

    The server is not named as a MariaDB: the package would then wait for more at their end.
    """
    events = BinLogStreamReader(
        {"host": "127.0.0.1", "port": port, "user": "root", "passwd": ""},
        server_id=77,
        log_file=FIRST,
        log_pos=4,
        resume_stream=True,
        only_schemas=[DATABASE],
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    try:
        return sum(len(event.rows) for event in events)
    finally:
        events.close()


if __name__ == "__main__":
    began_s = time.perf_counter()
    rows = decoded(int(sys.argv[1]))
    print(json.dumps({"rows": rows, "seconds": time.perf_counter() - began_s}))
