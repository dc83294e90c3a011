"""Many models on a machine whose driver shows GPUs: each model server is told which one it has."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX
from support.multi_model import MultiModelStack, serving_many
from support.nvidia_smi import A10G, Card, description, gpu_uuid, listing

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]


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


@pytest.mark.parametrize(
    ("count", "gpus"), [({}, [1, 0]), ({"SAGEMAKER_TFS_INSTANCE_COUNT": "3"}, [1, 0, 1])]
)
def test_each_gpu_has_a_model_server_with_every_model(
    count: Mapping[str, str], gpus: list[int], saved_models: Path, tmp_path: Path
) -> None:
    """The emptiest comes first; there are as many as GPUs, or as many as the setting says."""
    cards = [Card(A10G.name, A10G.total, used=9000, divisible=False), A10G]
    with serving_many(env={**count, **driver(tmp_path, cards)}) as stack:
        stack.loaded("only", saved_models / "half_plus_two")

        assert gpus_of(stack) == [gpu_uuid(gpu) for gpu in gpus]
        assert stack.invoke_model("only", "2.0", content_type="text/csv").status == 200
        state = '"state": "AVAILABLE"'
        assert all(state in stack.ask("GET", "/v1/models/only").body.decode() for _ in range(2 * len(gpus)))
