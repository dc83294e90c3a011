"""Many models on a machine whose driver shows GPUs: each model server is told which one it has."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX
from support.multi_model import MultiModelStack, serving_many
from support.nvidia_smi import A10G, gpu_uuid, listing

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]


def driver(folder: Path) -> Mapping[str, str]:
    """An environment in which ``nvidia-smi`` lists two GPUs."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!{sys.executable}\nprint({listing([A10G] * 2)!r})\n")
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
    ("count", "gpus"), [({}, [0, 1]), ({"SAGEMAKER_TFS_INSTANCE_COUNT": "3"}, [0, 1, 0])]
)
def test_each_gpu_has_a_model_server_with_every_model(
    count: Mapping[str, str], gpus: list[int], saved_models: Path, tmp_path: Path
) -> None:
    """There are as many as GPUs, or as many as the setting says."""
    with serving_many(env={**count, **driver(tmp_path)}) as stack:
        stack.loaded("only", saved_models / "half_plus_two")

        assert gpus_of(stack) == [gpu_uuid(gpu) for gpu in gpus]
        assert stack.invoke_model("only", "2.0", content_type="text/csv").status == 200
        state = '"state": "AVAILABLE"'
        assert all(state in stack.ask("GET", "/v1/models/only").body.decode() for _ in range(2 * len(gpus)))
