"""Devices of model servers, as the supervisor logs them."""

import pytest

from tfs_proxy.run.gpus import Devices

GPU_LINE = (
    "I0000 00:00:1 gpu_device.cc:2019] Created device /job:localhost/replica:0/task:0/device:GPU:0 with 13764 MB "
    "memory:  -> device: 0, name: Tesla T4, pci bus id: 0000:00:1e.0, compute capability: 7.5"
)


def test_gpus_are_read_from_the_model_servers_log(caplog: pytest.LogCaptureFixture) -> None:
    """Name and memory, per model server; that one uses none is a warning, since a CUDA library may be missing."""
    devices = Devices()
    devices.hear("model server 0", "something else")
    devices.hear("model server 0", GPU_LINE)

    with caplog.at_level("INFO"):
        devices.log("model server 0", 1)
        devices.log("model server 1", 1)
        devices.log("model server 2", 0)

    first, second, warning, last = caplog.messages
    assert first == "model server 0 runs on GPU:0 (Tesla T4, 13764 MB)"
    assert second == "model server 1 runs on the CPU"
    assert "model server 1 uses none" in warning
    assert last == "model server 2 runs on the CPU"
