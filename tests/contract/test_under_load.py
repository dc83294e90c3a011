"""SIGTERM, and kill -9 of workers and of model servers under load: each request is accounted for."""

import os
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as read_text

from contract.doors import Load, Running, pack, serving, until
from contract.stacks import EMBEDDED

pytestmark = pytest.mark.tensorflow

SCRIPT = """
import os
import tfs_proxy


def input_handler(data, context):
    note = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(note, f"{context.inference_id}\\n".encode())
    os.close(note)
    return data.read()


def output_handler(response, context):
    headers = {"X-Worker": str(os.getpid()), "X-Server": context.rest_uri.split(":")[2].split("/")[0]}
    return tfs_proxy.Response(response.content, "application/json", headers=headers)
"""
KILLS = 4


@pytest.fixture
def archive(saved_models: Path, tmp_path: Path) -> Path:
    """half_plus_two behind a script that notes the id of each request which it begins."""
    return pack(
        tmp_path / "model.tar.gz", {"code/inference.py": SCRIPT}, {"m": saved_models / "half_plus_two"}
    )


def settings(tmp_path: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Two workers, and where the script notes."""
    return {"NOTES": str(tmp_path / "notes"), "SAGEMAKER_GUNICORN_WORKERS": "2", **more}


def noted(tmp_path: Path) -> Counter[str]:
    """How often the script has begun each request."""
    return Counter((tmp_path / "notes").read_text().split())


def counted(running: Running) -> Counter[str]:
    """Requests to /invocations by status, as /metrics counts them."""
    counts = Counter[str]()
    for family in read_text(running.ask("GET", "/metrics").body.decode()):
        for sample in family.samples:
            labels = sample.labels
            if (
                sample.name == "http_server_request_duration_seconds_count"
                and labels["http_route"] == "/invocations"
            ):
                counts[labels["http_response_status_code"]] += int(sample.value)
    return counts


def test_sigterm_answers_all_that_was_sent(archive: Path, tmp_path: Path, either: dict[str, str]) -> None:
    """Each request that was accepted is handled once and answered; the others were never read; the status is 0."""
    with (
        serving("serve", str(archive), *EMBEDDED, env=settings(tmp_path, either)) as running,
        Load(running) as load,
    ):
        load.wait_for_more()
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == 0
        fates = load.finish()

    assert set(fates) <= {"200", "unread"}, fates
    assert noted(tmp_path) == Counter(load.with_fate("200"))
    assert set(load.bodies) == {b'{\n    "predictions": [2.5\n    ]\n}'}


def test_a_killed_worker_costs_what_it_had_begun(archive: Path, tmp_path: Path) -> None:
    """That is a 502 and is never handled again; all else is answered; nothing is cut; /metrics has the same counts."""
    with (
        serving("serve", str(archive), *EMBEDDED, env=settings(tmp_path, {})) as running,
        Load(running) as load,
    ):
        for _ in range(KILLS):
            load.wait_for_more()
            os.kill(int(load.last["x-worker"]), signal.SIGKILL)
        load.wait_for_more()
        fates = load.finish()
        until(lambda: counted(running) == fates, lambda: f"/metrics counts {fates}: {counted(running)}", 20)

    assert set(fates) <= {"200", "502"}, fates
    handled = noted(tmp_path)
    assert set(handled.values()) == {1}
    # A worker may die between its journal and the script's own note.
    assert set(load.with_fate("200")) <= set(handled) <= set(load.with_fate("200", "502"))


def test_a_killed_model_server_costs_no_request_a_connection(archive: Path, tmp_path: Path) -> None:
    """What it had begun is asked once more when it is back; nothing is cut, nothing handled twice by the script."""
    with (
        serving("serve", str(archive), *EMBEDDED, env=settings(tmp_path, {})) as running,
        Load(running) as load,
    ):
        for _ in range(2):
            load.wait_for_more()
            os.kill(running.listener(int(load.last["x-server"])), signal.SIGKILL)
            load.wait_for_more()
        fates = load.finish()
        until(lambda: counted(running) == fates, lambda: f"/metrics counts {fates}: {counted(running)}", 20)

    assert set(fates) <= {"200", "503"}, fates
    assert noted(tmp_path) == Counter(load.with_fate("200", "503"))
