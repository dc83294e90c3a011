"""One model server and common workers for all models, on real processes."""

import contextlib
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, pack
from support.gates import gate
from support.multi_model import MultiModelStack, serving_many
from support.processes import descendants, is_running
from support.scraping import scrape
from support.warmup_files import recorded, warm_up_with

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]
JSON = "application/json"
ROWS = '{"instances": [1.0]}'
STOPPED_WITHIN_SECONDS = 60.0
PASSES_ON = """
def input_handler(data, context):
    return data.read()


def output_handler(data, context):
    return data.content, "application/json"
"""


def slow_to_load(saved_models: Path, folder: Path, mark: str) -> Path:
    """A model whose load is held by its warm-up."""
    copy = folder / "slow"
    shutil.copytree(saved_models / "gate", copy)
    warm_up_with(copy / "1", recorded("mark", [mark.encode()]))
    return copy


def test_a_model_without_a_script_takes_no_process(many: MultiModelStack, saved_models: Path) -> None:
    """Its requests are answered by the common workers, and by the one model server."""
    many.loaded("first", saved_models / "half_plus_two")
    before = set(descendants(many.process.pid))

    many.loaded("second", saved_models / "half_plus_three")

    assert many.invoke_model("second", "1.0", "text/csv").json == {"predictions": [3.5]}
    assert many.invoke_model("first", "1.0", "text/csv").json == {"predictions": [2.5]}
    assert set(descendants(many.process.pid)) == before
    assert {many.unload(name).status for name in ("first", "second")} == {200}


def test_requests_that_need_no_conversion_pass_the_workers_by(
    many: MultiModelStack, saved_models: Path
) -> None:
    """TF Serving's JSON goes straight to the model server; what it refuses is explained by Python."""
    many.loaded("fast", saved_models / "half_plus_two")

    def by_workers() -> float:
        return scrape(many).total("tfs_proxy_stage_duration_seconds_count", model="fast", stage="read")

    before = by_workers()
    assert many.invoke_model("fast", ROWS, JSON).json == {"predictions": [2.5]}
    assert by_workers() == before
    assert many.invoke_model("fast", '{"instances": ["a"]}', JSON).status == 400
    assert many.invoke_model("fast", "1.0", "text/csv").status == 200
    many.wait_until(lambda: by_workers() == before + 2, "two requests came to a worker")
    assert many.unload("fast").status == 200


def test_a_name_that_is_loaded_again_has_its_new_signature(many: MultiModelStack, saved_models: Path) -> None:
    """No worker keeps what it knew of the model before."""
    many.loaded("again", saved_models / "half_plus_two")
    assert many.invoke_model("again", "1.0", "text/csv").json == {"predictions": [2.5]}
    assert many.unload("again").status == 200
    many.loaded("again", saved_models / "echo")
    assert many.invoke_model("again", "1.0", "text/csv").status != 404
    assert b"2.5" not in many.invoke_model("again", "1.0", "text/csv").body
    assert many.unload("again").status == 200


def test_a_model_server_that_dies_comes_back_with_all_models(
    many: MultiModelStack, saved_models: Path, tmp_path: Path
) -> None:
    """With a script or without one; requests wait for it."""
    script = pack(
        tmp_path / "a.tar.gz", {"code/inference.py": PASSES_ON}, {"m": saved_models / "half_plus_two"}
    )
    many.loaded("plain", saved_models / "half_plus_two")
    many.loaded("scripted", script)
    (server,) = many.model_servers()

    os.kill(server, signal.SIGKILL)

    assert many.invoke_model("scripted", ROWS, JSON).json == {"predictions": [2.5]}
    assert many.invoke_model("plain", ROWS, JSON).json == {"predictions": [2.5]}
    assert many.invoke_model("plain", "1.0", "text/csv").json == {"predictions": [2.5]}
    assert many.invoke_model("scripted", ROWS, JSON).json == {"predictions": [2.5]}
    many.wait_until(many.is_ready, "the run is ready")
    assert not is_running(server)
    assert {many.unload(name).status for name in ("plain", "scripted")} == {200}


def test_a_load_in_which_the_model_server_dies_fails_alone(
    many: MultiModelStack, saved_models: Path, tmp_path: Path
) -> None:
    """It may be what killed it: the model server comes back without it, and with the others."""
    many.loaded("good", saved_models / "half_plus_two")
    with ThreadPoolExecutor(1) as pool, gate(tmp_path / "gate") as shut:
        loading = pool.submit(many.load, "bad", slow_to_load(saved_models, tmp_path, shut.mark()))
        shut.wait_for()
        assert many.invoke_model("good", ROWS, JSON).status == 200  # no request waits for a load
        (server,) = many.model_servers()
        os.kill(server, signal.SIGKILL)
        answer = loading.result()
    assert (answer.status, answer.json) == (
        507,
        {"error": "the model server ended while it loaded this model."},
    )
    assert many.invoke_model("good", ROWS, JSON).json == {"predictions": [2.5]}
    assert "bad" not in many.urls()
    assert many.unload("good").status == 200


def test_common_workers_that_are_killed_come_back(many: MultiModelStack, saved_models: Path) -> None:
    """With all models."""
    many.loaded("kept", saved_models / "half_plus_two")
    assert many.invoke_model("kept", "1.0", "text/csv").status == 200
    workers = {int(record.name) for record in many.home.glob("*/journal/*")}
    assert workers
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    many.wait_until(lambda: not any(map(is_running, workers)), "they have ended")
    many.wait_until(lambda: _answers_csv(many, "kept"), "the model answers again")
    assert many.unload("kept").status == 200


def _answers_csv(stack: MultiModelStack, name: str) -> bool:
    with contextlib.suppress(OSError):
        return stack.invoke_model(name, "1.0", "text/csv").status == 200
    return False


def test_several_model_servers_have_all_models(saved_models: Path) -> None:
    """SAGEMAKER_TFS_INSTANCE_COUNT: each of them answers for every model, and one may die."""
    with serving_many(env={"SAGEMAKER_TFS_INSTANCE_COUNT": "2"}) as stack:
        stack.loaded("both", saved_models / "half_plus_two")
        first, _ = stack.model_servers()
        os.kill(first, signal.SIGKILL)
        assert [stack.invoke_model("both", ROWS, JSON).status for _ in range(10)] == [200] * 10
        stack.wait_until(stack.is_ready, "both are back")
        assert stack.unload("both").status == 200
        assert stack.ask("GET", "/v1/models/both").status == 404


def test_a_load_that_one_of_several_model_servers_did_not_survive(saved_models: Path, tmp_path: Path) -> None:
    """Nothing of it is left in the others, and the name is free."""
    env = {"SAGEMAKER_TFS_INSTANCE_COUNT": "2"}
    with serving_many(env=env) as stack, ThreadPoolExecutor(1) as pool, gate(tmp_path / "gate") as shut:
        loading = pool.submit(stack.load, "bad", slow_to_load(saved_models, tmp_path, shut.mark()))
        shut.wait_for()
        os.kill(stack.model_servers()[0], signal.SIGKILL)
        shut.open()
        assert loading.result().status == 507
        stack.wait_until(stack.is_ready, "both are back")
        stack.loaded("bad", saved_models / "half_plus_two")
        assert [stack.invoke_model("bad", ROWS, JSON).json for _ in range(8)] == [{"predictions": [2.5]}] * 8


def test_the_end_of_the_run_does_not_wait_for_a_load(saved_models: Path, tmp_path: Path) -> None:
    """Which is held for ever, as far as anybody knows; nor for an unload that waits for it."""
    env = {"TFS_PROXY_STOP_SECONDS": "2"}
    with serving_many(env=env) as stack, ThreadPoolExecutor(2) as pool, gate(tmp_path / "gate") as shut:
        stack.loaded("ready", saved_models / "half_plus_two")
        pool.submit(stack.load, "held", slow_to_load(saved_models, tmp_path, shut.mark()))
        shut.wait_for()
        pool.submit(stack.unload, "ready")
        stack.wait_until(lambda: stack.described("ready").status == 404, "it is being unloaded")
        stack.process.send_signal(signal.SIGTERM)
        assert stack.process.wait(STOPPED_WITHIN_SECONDS) == 0
