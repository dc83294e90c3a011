"""A request that takes more memory than there is: 507, and neither its model nor another one is lost."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.multi_model import MultiModelStack
from support.running import Answer

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]  # TensorFlow tries each allocation for 10 s
MEGABYTE = 1024 * 1024
ROOM_MEGABYTES = 400
"""What a model server may take beyond what it has: enough for small requests."""


@contextmanager
def limited_memory(pid: int) -> Iterator[None]:
    """Let a process take so much more address space, and no more; at the end as much as before."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    most_bytes = pages * resource.getpagesize() + ROOM_MEGABYTES * MEGABYTE
    before = resource.prlimit(pid, resource.RLIMIT_AS, (most_bytes, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_AS, before)


def take(many: MultiModelStack, name: str, megabytes: int) -> Answer:
    """Invoke a model that takes so much memory for its answer."""
    return many.invoke_model(name, json.dumps({"instances": [megabytes]}), "application/json")


def test_a_request_that_runs_out_of_memory(many: MultiModelStack, saved_models: Path) -> None:
    """Its words are TensorFlow's; smaller ones go on, as do other models, and TF Serving's API has its own code."""
    many.loaded("beside", saved_models / "half_plus_two")
    many.loaded("hungry", saved_models / "allocating")
    (server,) = many.children()["embedded"]
    assert take(many, "hungry", 1).status == 200
    with limited_memory(server):
        refused = take(many, "hungry", 4000)
        passed_on = many.ask("POST", "/v1/models/hungry:predict", json.dumps({"instances": [4000]}))

    assert refused.status == 507
    assert refused.json["error"].startswith("OOM when allocating tensor with shape[4000,1024,256]")
    assert passed_on.status == 429
    assert take(many, "hungry", 1).status == 200
    assert many.invoke_model("beside", '{"instances": [1.0]}', "application/json").status == 200
    assert server in many.children()["embedded"]
    assert {many.unload(name).status for name in ("hungry", "beside")} == {200}
