"""Prometheus's text, read back by Prometheus's own parser, and the door at which it is asked for."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from waterclock import cli
from waterclock.broker import Broker
from waterclock.broker.prometheus import prometheus as broker_page
from waterclock.errors import UsageError
from waterclock.web.metrics import Metric, Sample, text
from waterclock.web.server import CONTENT, MetricsServer


def read_back(page: str) -> dict[str, tuple[str, list[tuple[str, dict[str, str], float]]]]:
    """name -> (kind, samples), as Prometheus reads it; a counter's name without _total."""
    found = {}
    for family in text_string_to_metric_families(page):
        assert family.documentation
        found[family.name] = (family.type, [(s.name, dict(s.labels), s.value) for s in family.samples])
    return found


def get(url: str) -> tuple[int, str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers


# The text


def test_prometheus_reads_back_what_was_written() -> None:
    page = text(
        [
            Metric("waterclock_events_total", "counter", "Events.", (Sample(12, {"pipeline": "a"}), Sample(0.5))),
            Metric(
                "waterclock_phase_seconds", "summary", "Phases.", (Sample(1.25, {}, "_sum"), Sample(3, {}, "_count"))
            ),
            Metric("waterclock_held_events", "gauge", "Held.", (Sample(-7),)),
        ]
    )
    assert read_back(page) == {
        "waterclock_events": (
            "counter",
            [("waterclock_events_total", {"pipeline": "a"}, 12.0), ("waterclock_events_total", {}, 0.5)],
        ),
        "waterclock_phase_seconds": (
            "summary",
            [("waterclock_phase_seconds_sum", {}, 1.25), ("waterclock_phase_seconds_count", {}, 3.0)],
        ),
        "waterclock_held_events": ("gauge", [("waterclock_held_events", {}, -7.0)]),
    }


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", "a\\nb", 'a\\"b', "", "{}", "é 🕰", "#", " "])
def test_a_label_of_any_text_comes_back_as_it_was(value: str) -> None:
    page = text([Metric("waterclock_x", "gauge", 'a "help"\nof \\ any text', (Sample(1, {"name": value}),))])
    assert read_back(page)["waterclock_x"] == ("gauge", [("waterclock_x", {"name": value}, 1.0)])
    assert len(page.splitlines()) == 3


@pytest.mark.parametrize(
    "value", [0, 1, -1, 2**53, 0.1, 1e-9, 1e300, 1_767_225_600.000001, float("inf"), float("-inf")]
)
def test_a_number_comes_back_as_it_was(value: float) -> None:
    page = text([Metric("waterclock_x", "gauge", "x", (Sample(value),))])
    assert read_back(page)["waterclock_x"][1] == [("waterclock_x", {}, value)]


def test_a_metric_without_samples_is_left_out() -> None:
    assert text([Metric("waterclock_x", "gauge", "x", ())]) == ""


@pytest.mark.parametrize(
    ("name", "kind", "sample", "told"),
    [
        ("events_total", "counter", Sample(1), "waterclock_"),
        ("waterclock_Events_total", "counter", Sample(1), "lower case"),
        ("waterclock_events", "counter", Sample(1), "_total"),
        ("waterclock_held_total", "gauge", Sample(1), "_total"),
        ("waterclock_x", "histogram", Sample(1), "kind"),
        ("waterclock_x", "gauge", Sample(1, {}, "_sum"), "ending"),
        ("waterclock_x", "summary", Sample(1), "ending"),
        ("waterclock_x", "gauge", Sample(1, {"a b": "c"}), "label"),
    ],
)
def test_a_metric_that_prometheus_would_not_take_is_refused_when_it_is_made(
    name: str, kind: str, sample: Sample, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        Metric(name, kind, "what", (sample,))


# The door


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    pages = iter(["first\n", "second\n"])
    with MetricsServer(lambda: next(pages), 0) as made:
        yield made


def test_each_request_gets_a_page_of_its_own_moment(server: MetricsServer) -> None:
    status, page, headers = get(server.url)
    assert (status, page, headers["Content-Type"], headers["Content-Length"]) == (200, "first\n", CONTENT, "6")
    assert get(f"{server.url}?debug=1")[:2] == (200, "second\n")


def test_another_path_is_not_found_and_says_where_the_page_is(server: MetricsServer) -> None:
    assert get(server.url.removesuffix("/metrics"))[:2] == (404, "ask for /metrics\n")


def test_a_page_that_cannot_be_made_is_told_and_the_next_one_is_served() -> None:
    answers: Iterator[Any] = iter([RuntimeError("the sink is away"), "well\n"])

    def page() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    with MetricsServer(page, 0) as server:
        assert get(server.url)[:2] == (500, "the metrics could not be made: the sink is away\n")
        assert get(server.url)[:2] == (200, "well\n")


def test_it_listens_on_this_machine_only(server: MetricsServer) -> None:
    assert server.url.startswith("http://127.0.0.1:")


def test_a_port_that_is_taken_is_refused_in_a_sentence() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port {port} of 127\.0\.0\.1: .*in use\. Name another port"):
            MetricsServer(str, port)


def test_after_close_nobody_listens_and_the_port_is_free(server: MetricsServer) -> None:
    port = int(server.url.split(":")[2].split("/")[0])
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    with MetricsServer(lambda: "again\n", port) as again:
        assert get(again.url)[1] == "again\n"


def test_a_client_that_says_nothing_keeps_nobody_waiting(server: MetricsServer) -> None:
    port = int(server.url.split(":")[2].split("/")[0])
    with socket.create_connection(("127.0.0.1", port)) as silent:
        silent.send(b"GET /met")
        assert get(server.url)[0] == 200


def test_a_page_is_made_by_one_thread_at_a_time() -> None:
    inside, most, gate = 0, 0, threading.Barrier(2, timeout=10)

    def page() -> str:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.05)
        inside -= 1
        return ""

    def ask() -> None:
        gate.wait()
        get(server.url)

    with MetricsServer(page, 0) as server:
        askers = [threading.Thread(target=ask) for _ in range(2)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
    assert most == 1


def test_close_waits_for_a_page_that_is_being_made_and_no_other_follows() -> None:
    inside, go_on, made = threading.Event(), threading.Event(), []

    def page() -> str:
        inside.set()
        go_on.wait(10)
        made.append("page")
        return ""

    server = MetricsServer(page, 0)
    asker = threading.Thread(target=get, args=(server.url,))
    asker.start()
    assert inside.wait(10)
    closer = threading.Thread(target=lambda: (server.close(), made.append("closed")))
    closer.start()
    closer.join(1)
    assert made == []
    go_on.set()
    closer.join(10)
    asker.join(10)
    assert made == ["page", "closed"]
    assert server._answer("/metrics") == (503, "closed\n")


def test_another_method_is_refused(server: MetricsServer) -> None:
    port = int(server.url.split(":")[2].split("/")[0])
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as client:
        client.request("POST", "/metrics", "x")
        assert client.getresponse().status == 501


# The broker's


def test_a_brokers_page_tells_its_statistics() -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        statistics = broker.statistics()
        found = read_back(broker_page(statistics))
    assert found["waterclock_broker_partitions"] == ("gauge", [("waterclock_broker_partitions", {}, 3.0)])
    delayed = {labels["purgatory"] for _, labels, _ in found["waterclock_broker_delayed_operations"][1]}
    assert delayed == set(statistics.purgatories)


def test_the_broker_command_serves_its_page_until_it_ends() -> None:
    command = [sys.executable, "-m", "waterclock.cli", "broker", "--port", "0", "--metrics", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = process.stderr.readline().removeprefix("metrics at ").strip()
        assert read_back(get(url)[1])["waterclock_broker_leads"][1] == [("waterclock_broker_leads", {}, 1.0)]
        process.terminate()
        assert process.wait(timeout=20) == 0


@pytest.mark.parametrize("port", ["-1", "65536", "http", "", "1.5"])
def test_what_is_no_port_is_wrong_usage(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["run", "orders.toml", f"--metrics={port}"])
    assert f"{port!r} is no port from 0 to 65535" in capsys.readouterr().err


def test_a_broker_whose_port_for_metrics_is_taken_ends_with_a_sentence() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = str(other.getsockname()[1])
        command = [sys.executable, "-m", "waterclock.cli", "broker", "--port", "0", "--metrics", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"port {port}" in done.stderr
