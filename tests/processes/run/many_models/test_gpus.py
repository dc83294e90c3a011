"""Process mode on a machine whose driver shows GPUs: each model's server is told which one it has."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX
from support.multi_model import MultiModelStack, serving_many
from support.nvidia_smi import A10G, Card, description, gpu_uuid, listing
from support.scraping import scrape

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]
SHARE = "tfs_proxy_model_gpu_share_ratio"


def driver(folder: Path, cards: list[Card]) -> Mapping[str, str]:
    """An environment in which ``nvidia-smi`` prints what it does with these cards."""
    program = folder / "nvidia-smi"
    printed = {"-L": listing(cards), "-q": description(cards)}
    program.write_text(f"#!{sys.executable}\nimport sys\nprint({printed!r}[sys.argv[1]])\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin:/bin"}


def gpus_of(stack: MultiModelStack) -> list[str]:
    """The GPUs that its model servers may use, in the order of their start."""
    return [
        word.decode().removeprefix("CUDA_VISIBLE_DEVICES=")
        for pid in stack.model_servers()
        for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if word.startswith(b"CUDA_VISIBLE_DEVICES=")
    ]


@pytest.mark.parametrize("mode", ["shared", "process"])
def test_instances_of_a_model_are_spread_over_gpus(mode: str, saved_models: Path, tmp_path: Path) -> None:
    """Each has one, the emptiest first; in shared mode they are the same for all models."""
    cards = [Card(A10G.name, A10G.total, used=9000, divisible=False), A10G]
    env = {"TFS_PROXY_MULTI_MODEL": mode, "SAGEMAKER_TFS_INSTANCE_COUNT": "2"}
    with serving_many(env={**env, **driver(tmp_path, cards)}) as stack:
        stack.loaded("only", saved_models / "half_plus_two")

        assert gpus_of(stack) == [gpu_uuid(1), gpu_uuid(0)]
        assert stack.invoke_model("only", "2.0", content_type="text/csv").status == 200


def test_models_are_spread_over_gpus(saved_models: Path, tmp_path: Path) -> None:
    """The emptiest by memory first; a line of the log and /metrics say where each is."""
    cards = [Card(A10G.name, A10G.total, used=9000, divisible=False), A10G]
    env = {"TFS_PROXY_MULTI_MODEL": "process", "TFS_PROXY_MAX_LOADED_MODELS": "4"}
    with serving_many(env={**env, **driver(tmp_path, cards)}) as stack:
        for name in ("first", "second"):
            stack.loaded(name, saved_models / "half_plus_two")

        assert gpus_of(stack) == [gpu_uuid(1), gpu_uuid(0)]
        stack.wait_for_log(f"model first: on {gpu_uuid(1)}")
        assert 0 < scrape(stack).total(SHARE, model="first", hw_id=gpu_uuid(1)) < 1
        assert {stack.unload(name).status for name in ("first", "second")} == {200}
