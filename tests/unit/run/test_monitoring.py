"""Where the model servers show their own metrics."""

from pathlib import Path

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


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("prometheus_config { enable: true }", "/monitoring/prometheus/metrics"),
        ('prometheus_config { enable: true, path: "/mine" }', "/mine"),
        ('prometheus_config { path: "/mine" }', None),
        ("", None),
        ("nonsense {", None),
        ('prometheus_config { enable: true, path: "relative" }', None),
    ],
)
def test_the_users_own_config_stays_and_its_path_is_asked(
    tmp_path: Path, text: str, path: str | None
) -> None:
    file = tmp_path / "monitoring.txt"
    file.write_text(text)

    assert monitoring_for((f"--monitoring_config_file={file}",)) == Monitoring(path, None)
    assert monitoring_for(("--monitoring_config_file", str(file))) == Monitoring(path, None)
    assert monitoring_for((f"--monitoring_config_file={tmp_path / 'none'}",)) == Monitoring(None, None)
