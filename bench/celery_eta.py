"""One message, due 130 seconds after it was sent: how often it is handled by Celery over Redis, and by a relay's handler.

    python bench/celery_eta.py        three minutes; needs pip install celery redis 'fakeredis[lua]'

Celery's worker keeps a task with an ETA unacknowledged until it is due. Over Redis such a task is given out again once the
visibility timeout is over: 5 seconds here, an hour by default (celery/celery issue 2599). It is looked for at a worker's
start and each 100 seconds. Redis is fakeredis, in this process; two workers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from celery import Celery  # type: ignore[import-not-found,unused-ignore]

DUE_S, VISIBLE_S, LONGEST_S, WORKERS = 130, 5, 150, 2
app = Celery("celery_eta", broker=os.environ.get("ETA_REDIS", ""))
app.conf.update(broker_transport_options={"visibility_timeout": VISIBLE_S}, broker_connection_retry_on_startup=True)


@app.task(name="remind")  # type: ignore[untyped-decorator,unused-ignore]
def remind() -> None:
    with open(os.environ["ETA_RAN"], "a") as out:
        print(time.time(), file=out)


def by_celery(folder: Path) -> list[float]:
    """The seconds after which it ran."""
    from fakeredis import TcpFakeServer  # type: ignore[import-not-found,unused-ignore]

    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ran, address = folder / "ran", f"redis://127.0.0.1:{server.server_address[1]}/0"
    environment = {**os.environ, "ETA_RAN": str(ran), "ETA_REDIS": address}
    command = [sys.executable, "-P", "-m", "celery", "-A", "celery_eta", "worker"]
    command += ["--pool", "threads", "-c", "1", "-l", "ERROR"]
    workers = [
        subprocess.Popen([*command, "-n", f"{number}@here"], cwd=Path(__file__).parent, env=environment)
        for number in range(WORKERS)
    ]
    time.sleep(10)
    app.conf.broker_url = address
    began_s = time.time()
    remind.apply_async(countdown=DUE_S)
    time.sleep(LONGEST_S)
    for worker in workers:
        worker.terminate()
        worker.wait(30)
    return [round(float(line) - began_s, 1) for line in ran.read_text().splitlines()]


def by_a_relay(folder: Path) -> list[float]:
    """Likewise, by a handler."""
    from waterclock.relay import Delays, Delivery

    command = [
        sys.executable,
        "-P",
        "-m",
        "waterclock.cli",
        "relay",
        "--embedded",
        str(folder / "relay"),
        "--port",
        "0",
    ]
    relay = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    ready = re.search(r"on ([0-9.:]+), files in", relay.stdout.readline() if relay.stdout else "")
    ran: list[float] = []
    with Delays(ready[1] if ready else "") as delays:

        @delays.handler("reminders")
        def remind(delivery: Delivery) -> None:
            ran.append(time.time())

        began_s = time.time()
        delays.send("reminders", "", delay=f"{DUE_S} s")
        threading.Timer(LONGEST_S, delays.stop).start()
        delays.run()
    relay.terminate()
    relay.communicate()
    return [round(at_s - began_s, 1) for at_s in ran]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        ran: dict[str, list[float]] = {}
        ways = {"Celery": by_celery, "waterclock": by_a_relay}
        threads = [
            threading.Thread(target=lambda way=way, call=call: ran.update({way: call(Path(name))}))  # type: ignore[misc]
            for way, call in ways.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for way in ways:
        print(f"{way:<11} ran {len(ran[way])} times, after {ran[way]} s")


if __name__ == "__main__":
    main()
