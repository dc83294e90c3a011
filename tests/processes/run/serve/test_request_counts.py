"""Counts of requests that nginx alone knows of, of records, and the times of stages; test_fronts.py has the rest."""

import os
import signal
import time
from contextlib import closing
from http.client import HTTPConnection

import grpc
import pytest

from support.archives import NEEDS_NGINX
from support.scraping import counted, scrape
from support.stack import Stack

pytestmark = NEEDS_NGINX
INSTANCES = b'{"instances": [1.0, 2.0]}'
RECORDS = "tfs_proxy_request_records"
SLOW_READER_REQUESTS = 3000
WRITE_SECONDS, MARGIN = 0.010, 4
"""What nginx may wait for whoever reads its lines, and what the machine may take for other things."""


def test_grpc_calls_are_counted_with_their_status(stand_in: Stack) -> None:
    """The status of gRPC is in the trailers, that of HTTP is always 200."""

    def calls() -> float:
        return scrape(stand_in).total("tfs_proxy_grpc_requests_total", grpc_status="12")

    before, others = calls(), counted(stand_in)["other", "POST", "200"]
    with grpc.insecure_channel(stand_in.grpc) as channel:
        for _ in range(3):
            with pytest.raises(grpc.RpcError):
                channel.unary_unary("/made.up.Service/Call")(b"", timeout=10)

    stand_in.wait_until(lambda: calls() == before + 3, "three calls count")
    assert counted(stand_in)["other", "POST", "200"] == others + 3


def test_nginx_waits_for_no_reader_and_loses_no_line(stand_in: Stack) -> None:
    """While the supervisor stands still, thousands of requests are answered as quickly, and counted later."""
    before = counted(stand_in)["/", "TRACE", "405"]
    # The supervisor answers /ping and counts: stopped, it does neither.
    os.kill(stand_in.process.pid, signal.SIGSTOP)
    try:
        with closing(HTTPConnection(stand_in.host, stand_in.port, timeout=60)) as connection:
            seconds = sorted(_ask_nginx(connection) for _ in range(SLOW_READER_REQUESTS))
    finally:
        os.kill(stand_in.process.pid, signal.SIGCONT)

    assert seconds[int(len(seconds) * 0.99)] < WRITE_SECONDS * MARGIN
    stand_in.wait_until(
        lambda: counted(stand_in)["/", "TRACE", "405"] == before + SLOW_READER_REQUESTS,
        "every request is counted",
    )


def _ask_nginx(connection: HTTPConnection) -> float:
    """Seconds of a request that nginx answers by itself."""
    began = time.perf_counter()
    connection.request("TRACE", "/")
    response = connection.getresponse()
    response.read()
    assert response.status == 405
    return time.perf_counter() - began


def test_records_are_counted_where_they_are_known(stand_in: Stack) -> None:
    """By a worker that reads them."""

    def counts() -> tuple[float, float]:
        metrics = scrape(stand_in)
        requests, records = (metrics.total(f"{RECORDS}_{part}", model="m") for part in ("count", "sum"))
        return requests, records

    requests, records = counts()
    assert stand_in.invoke(INSTANCES, Accept="application/json;q=1").status == 200
    stand_in.wait_until(lambda: counts() == (requests + 1, records + 2), "its two records are counted")


@pytest.mark.parametrize("path", ["/invocations", "/v1/models/m:predict"])
def test_a_client_that_asks_gets_the_times_of_the_stages(stand_in: Stack, path: str) -> None:
    """Whatever path the request would take otherwise, and with the same answer."""
    headers = {"Content-Type": "application/json"}
    untimed = stand_in.ask("POST", path, INSTANCES, headers)
    timed = stand_in.ask("POST", path, INSTANCES, {**headers, "X-Tfs-Proxy-Timing": "1"})
    names = [part.partition(";dur=")[0] for part in timed.headers["server-timing"].split(", ")]

    assert (timed.status, timed.body) == (untimed.status, untimed.body) == (200, untimed.body)
    assert {"read", "model_server", "total"} <= set(names)
    assert "server-timing" not in untimed.headers
