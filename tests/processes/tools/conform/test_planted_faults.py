"""A container that keeps the contract is found so, and each planted fault by the check that names it."""

from pathlib import Path

import pytest

from support.ports import free_port
from support.toy_container.faults import FAULTS
from support.toy_container.judged import judged
from tfs_proxy.tools.conform.check import Check
from tfs_proxy.tools.conform.checks import ALL
from tfs_proxy.tools.conform.judge import CheckOutcome, CheckResult

CHECKS = {check.name: check for check in ALL}
NEEDS_AN_IMAGE = {
    "start-stop/exec-form",
    "start-stop/no-tini",
    "pipeline/label",
    "multi-model/label",
    "streaming/websocket-label",
}
NOT_SAID = {"batch/declared-chunks"}
SHORT_SECONDS = {"never-ready": 2.0, "no-ping": 2.0, "ignores-port": 2.0, "empty-waits": 2.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "weights").write_text("0.5")
    return folder


def shown(results: list[CheckResult]) -> list[str]:
    return [f"{result.check.name}: {result.violation or result.note}" for result in results]


def test_the_toy_container_keeps_the_contract(model: Path) -> None:
    """No must and no advice is found; what is not run needs an image, or was not asked for."""
    results: list[CheckResult] = []
    with judged(model) as judge:
        judge.run(ALL, results.append)

    assert shown([result for result in results if result.outcome is CheckOutcome.FAILED]) == []
    not_run = {result.check.name for result in results if result.outcome is CheckOutcome.NOT_RUN}
    assert not_run == NEEDS_AN_IMAGE | NOT_SAID


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, model: Path) -> None:
    check: Check = CHECKS[FAULTS[fault][0]]
    port = str(free_port()) if fault == "ignores-port" else "{port}"
    with judged(model, fault, port, SHORT_SECONDS.get(fault, 60.0)) as judge:
        result = judge.judge(check)

    assert result.outcome is CheckOutcome.FAILED, result.note
    assert result.violation
    assert result.violation.got
