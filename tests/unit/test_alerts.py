"""deploy/prometheus, judged by Prometheus's own promtool: configurations, rules, and alerts that fire and are silent."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.prometheus import FILES, NEEDS_PROMETHEUS, configuration


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """What promtool has to say, errors and all."""
    return subprocess.run(
        ["promtool", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def read(name: str) -> Any:
    """A file of deploy/prometheus."""
    return yaml.safe_load((FILES / name).read_text())


@NEEDS_PROMETHEUS
def test_the_configurations_are_valid(tmp_path: Path) -> None:
    """With the rules that they name; Debian's promtool knows no Kubernetes, so its part is left out."""
    kubernetes = tmp_path / "kubernetes.yml"
    kubernetes.write_text(yaml.safe_dump(configuration(8080)))

    for config in (FILES / "prometheus.yml", kubernetes):
        checked = promtool("check", "config", config)
        assert checked.returncode == 0, checked.stdout


@NEEDS_PROMETHEUS
def test_the_alerts_fire_and_are_silent_as_they_should() -> None:
    """`alerts.test.yml`."""
    tested = promtool("test", "rules", FILES / "alerts.test.yml")

    assert tested.returncode == 0, tested.stdout


@pytest.mark.parametrize("fires", [True, False], ids=["fires", "silent"])
def test_every_alert_is_proven(fires: bool) -> None:
    """With series for which it fires, and with series for which it does not."""
    cases: Sequence[dict[str, Any]] = [
        case for test in read("alerts.test.yml")["tests"] for case in test["alert_rule_test"]
    ]

    assert {case["alertname"] for case in cases if bool(case.get("exp_alerts")) is fires} == {
        rule["alert"] for group in read("alerts.yml")["groups"] for rule in group["rules"]
    }
