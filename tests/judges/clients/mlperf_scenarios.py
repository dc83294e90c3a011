"""MLCommons' load generator posts to /invocations: one scenario; prints its summary as JSON on the last line.

mlperf_scenarios.py Server|Offline HOST PORT BODY QPS SECONDS LATENCY_MS OUTPUT_FOLDER
"""

import http.client
import json
import queue
import sys
import threading
from pathlib import Path

import mlperf_loadgen as lg

CONNECTIONS = 16
SAMPLES = 64
HEADERS = {"Content-Type": "application/json"}


class Endpoint:
    """The system under test: threads that post one request each at a time, on kept connections."""

    def __init__(self, host: str, port: int, body: bytes) -> None:
        self.failures = 0
        self._host, self._port, self._body = host, port, body
        self._queries: queue.SimpleQueue = queue.SimpleQueue()
        for _ in range(CONNECTIONS):
            threading.Thread(target=self._answer, daemon=True).start()

    def issue(self, samples: list) -> None:
        for sample in samples:
            self._queries.put(sample.id)

    def _answer(self) -> None:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=60)
        while True:
            query = self._queries.get()
            try:
                connection.request("POST", "/invocations", self._body, HEADERS)
                answer = connection.getresponse()
                answer.read()
                self.failures += answer.status != 200
            except (OSError, http.client.HTTPException):
                self.failures += 1
                connection.close()
            lg.QuerySamplesComplete([lg.QuerySampleResponse(query, 0, 0)])


def main() -> None:
    scenario, host, port, body, qps, seconds, latency_ms, folder = sys.argv[1:]
    settings = lg.TestSettings()
    settings.scenario = getattr(lg.TestScenario, scenario)
    settings.mode = lg.TestMode.PerformanceOnly
    settings.server_target_qps = settings.offline_expected_qps = float(qps)
    settings.server_target_latency_ns = int(float(latency_ms) * 1_000_000)
    settings.min_duration_ms = int(float(seconds) * 1000)
    settings.min_query_count = 100
    log = lg.LogSettings()
    log.log_output.outdir = folder
    log.enable_trace = False
    endpoint = Endpoint(host, int(port), body.encode())
    system = lg.ConstructSUT(endpoint.issue, lambda: None)
    library = lg.ConstructQSL(SAMPLES, SAMPLES, lambda _samples: None, lambda _samples: None)
    lg.StartTestWithLogSettings(system, library, settings, log)
    lg.DestroyQSL(library)
    lg.DestroySUT(system)
    lines = Path(folder, "mlperf_log_summary.txt").read_text().splitlines()
    pairs = (line.partition(":") for line in lines if ":" in line)
    summary = {name.strip(): value.strip() for name, _, value in pairs}
    print(json.dumps({"failures": endpoint.failures, **summary}))


if __name__ == "__main__":
    main()
