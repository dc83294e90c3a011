"""Where the model servers show their own metrics."""

import pytest
from google.protobuf import text_format

from tfs_proxy.run.programs.model_server import Monitoring, monitoring_for
from tfs_proxy.wire.protos import MonitoringConfig


def test_nobody_outside_can_guess_the_path() -> None:
    """The official server's REST port is open on all addresses."""
    first, second = monitoring_for(()), monitoring_for(("--enable_batching=true",))
    config = text_format.Parse(first.config or "", MonitoringConfig()).prometheus_config

    assert (config.enable, config.path) == (True, first.path)
    assert len(first.path or "") > 32
    assert first.path != second.path


@pytest.mark.parametrize("words", [("--monitoring_config_file=own",), ("--monitoring_config_file", "own")])
def test_the_users_own_file_is_not_replaced(words: tuple[str, ...]) -> None:
    assert monitoring_for(words) == Monitoring(None, None)
