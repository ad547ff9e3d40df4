"""A broker of ours as a process whose power is cut by SIGUSR1: what was not on the disk is gone, and it starts again.

python -m tests.relay.kills.powered FOLDER PORT
"""

from __future__ import annotations

import signal
import sys

from waterclock.testing import Broker


def main(folder: str, port: int) -> None:
    settings = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
    heard = (signal.SIGUSR1, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    with Broker(folder, port=port, settings=settings) as broker:
        print(f"ready on {broker.bootstrap}", flush=True)
        while signal.sigwait(heard) == signal.SIGUSR1:
            broker.cut_power()
            broker.start()
            print("power is back", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
