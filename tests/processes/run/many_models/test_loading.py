"""Loads that are held in the middle: what waits for them, and what must not; a start that does not get ready."""

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from support import gates
from support.gates import gate
from support.multi_model import LONG_SECONDS, MultiModelStack, saying, script_model, serving_many
from support.processes import descendants
from tfs_proxy.values.names import LOADED_MODEL_CHARACTERS

HELD_SECONDS = 0.5
"""For which a call that must wait is seen to wait; more would prove no more."""


def held_archive(target: Path, mark: str) -> Path:
    """A script model whose import waits at a gate."""
    return script_model(target, f"{gates.SCRIPT}\nhold({mark!r})\n{saying('late')}")


def test_other_models_answer_while_one_is_loading(many: MultiModelStack, tmp_path: Path) -> None:
    """So do the calls of the contract, an unload of another among them."""
    other = script_model(tmp_path / "other.tar.gz", saying("other"))
    for name in ("beside", "leaving"):
        many.loaded(name, other)
    with ThreadPoolExecutor(1) as pool, gate(tmp_path / "gate") as shut:
        loading = pool.submit(many.load, "slow", held_archive(tmp_path / "slow.tar.gz", shut.mark()))
        shut.wait_for()

        answers = [many.invoke_model("beside", "x").status for _ in range(20)]
        again = many.load("slow", other)

        assert answers == [200] * 20
        assert (again.status, again.json["error"].partition(",")[0]) == (
            409,
            "model slow is being loaded already",
        )
        assert (many.described("slow").status, many.described("slow").json) == (
            404,
            {"error": "model slow is loading"},
        )
        assert "slow" not in many.urls()
        assert many.unload("leaving").status == 200
        assert many.is_ready()
        assert not loading.done()
        shut.open()
        assert loading.result().status == 200
    assert many.answers("slow", "x")
    assert {many.unload(name).status for name in ("slow", "beside")} == {200}


def test_a_request_to_a_model_that_is_loading_waits_for_it(many: MultiModelStack, tmp_path: Path) -> None:
    """It is answered by the model once that is there, body and all, in chunks too; the name is the longest."""
    name = "a" * LOADED_MODEL_CHARACTERS
    path, text = f"/models/{name}/invoke", {"Content-Type": "text/plain"}
    with ThreadPoolExecutor(3) as pool, gate(tmp_path / "gate") as shut:
        loading = pool.submit(many.load, name, held_archive(tmp_path / "a.tar.gz", shut.mark()))
        shut.wait_for()
        bodies = (b"x" * 100_000, iter([b"x" * 1_000_000] * 5))
        waiting = [pool.submit(many.ask, "POST", path, body, text, LONG_SECONDS) for body in bodies]
        assert wait(waiting, HELD_SECONDS).not_done == set(waiting)
        shut.open()
        assert loading.result().status == 200
        answers = [each.result() for each in waiting]
    assert [(answer.status, answer.body.split()[0]) for answer in answers] == [(200, b"late")] * 2
    assert many.unload(name).status == 200


def test_a_request_does_not_wait_longer_than_requests_may_take(tmp_path: Path) -> None:
    """Then it is a 503 that says why, and the load goes on."""
    with (
        serving_many(env={"TFS_PROXY_REQUEST_TIMEOUT_SECONDS": "1"}) as stack,
        ThreadPoolExecutor(1) as pool,
        gate(tmp_path / "gate") as shut,
    ):
        loading = pool.submit(stack.load, "slow", held_archive(tmp_path / "a.tar.gz", shut.mark()))
        shut.wait_for()
        answer = stack.invoke_model("slow", "x")
        assert (answer.status, answer.json) == (503, {"error": "model slow is still loading"})
        shut.open()
        assert loading.result().status == 200
        assert stack.answers("slow", "x")


def test_an_unload_ends_a_load_that_is_under_way(tmp_path: Path) -> None:
    """Its processes are gone when the call returns; the load is a 503 that says so."""
    with (
        serving_many(env={"TFS_PROXY_STOP_SECONDS": "2"}) as stack,
        ThreadPoolExecutor(1) as pool,
        gate(tmp_path / "gate") as shut,
    ):
        before = set(descendants(stack.process.pid))
        loading = pool.submit(stack.load, "unwanted", held_archive(tmp_path / "a.tar.gz", shut.mark()))
        shut.wait_for()
        answer = stack.unload("unwanted")
        assert (answer.status, answer.json) == (200, {"message": "model unwanted is unloaded"})
        assert set(descendants(stack.process.pid)) <= before
        failed = loading.result()
        assert failed.status == 503
        assert failed.json == {"error": "model unwanted was unloaded while it was loading"}


def test_a_shared_model_server_that_never_answers_ends_the_start(tmp_path: Path) -> None:
    """At the latest after the wait time, with what is missing."""
    program = tmp_path / "silent"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    limit = {"SAGEMAKER_TFS_WAIT_TIME_SECONDS": "5"}
    stack = MultiModelStack("--model-server", str(program), env=limit)
    try:
        status = stack.wait()
    finally:
        stack.close()

    assert status == 5
    missing = "starting: the model server of all models"
    assert f"not ready within SAGEMAKER_TFS_WAIT_TIME_SECONDS=5: {missing}." in stack.log
