"""The engine's loading, replacing and letting go, with loads that are made up."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.rest_app import Passed
from support.waiting import wait_until
from tfs_proxy.embedded.core.catalog import Catalog, VersionState
from tfs_proxy.embedded.core.servable import LoadedServable
from tfs_proxy.embedded.errors import ServingError
from tfs_proxy.embedded.lifecycle import Retry, ServableLifecycle
from tfs_proxy.embedded.model_config import ModelSource, Policy
from tfs_proxy.wire.grpc_codes import GrpcCode


class Nothing(Passed):
    """A backend that says when it is closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


class Loads:
    """Loads whatever it is asked for, unless it is told to fail or, from the attempt ``held_from`` on, to wait."""

    def __init__(self) -> None:
        self.attempts: list[tuple[str, int]] = []
        self.failing: set[int] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.held_from = 1
        self.backends: dict[tuple[str, int], Nothing] = {}

    def __call__(self, name: str, version: int, _folder: Path) -> LoadedServable:
        self.attempts.append((name, version))
        if len(self.attempts) >= self.held_from:
            self.gate.wait(60)
        if version in self.failing:
            raise ServingError(GrpcCode.NOT_FOUND, f"no model in version {version}")
        backend = self.backends[name, version] = Nothing()
        return LoadedServable(name, version, {}, backend)


def eventually(condition: Callable[[], bool]) -> None:
    wait_until(condition, 60, "it has happened", pause=0.005)


class Run:
    """A catalog and a lifecycle over a folder of one model."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.loads = Loads()
        self.catalog = Catalog()
        settings: dict[str, Any] = {"retry": Retry(1, 0.01), "load_threads": 2, **options}
        self.lifecycle = ServableLifecycle(self.catalog, self.loads, **settings)
        self.base = folder / "m"
        self.base.mkdir()

    def add(self, *versions: int) -> None:
        for version in versions:
            (self.base / str(version)).mkdir()

    def source(self, policy: Policy | None = None, **labels: int) -> ModelSource:
        return ModelSource("m", str(self.base), policy or Policy(), labels)

    def states(self) -> dict[int, VersionState]:
        return {status.version: status.state for status in self.catalog.statuses("m")}

    def serves(self, *versions: int) -> bool:
        return set(self.catalog.models["m"].serving) == set(versions)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    made.loads.gate.set()
    made.lifecycle.close()


def has_ended(run: Run, code: GrpcCode, message: str) -> None:
    """Let loads go on: the second version ends with an error, and the first one serves."""
    run.loads.gate.set()
    eventually(lambda: run.states()[2] is VersionState.END)
    newest, _ = run.catalog.statuses("m")
    assert (newest.code, newest.message) == (code, message)
    assert run.serves(1)


def test_a_failed_load_is_retried_and_told_once_no_try_is_left(run: Run) -> None:
    """Until then it is loading and all is well; then it has ended with its error, and the old version serves."""
    run.add(1)
    run.lifecycle.reload([run.source()])
    run.lifecycle.wait_until_available(["m"])
    run.loads.failing.add(2)
    run.loads.held_from = 3
    run.loads.gate.clear()
    run.add(2)
    run.lifecycle.poll()
    eventually(lambda: len(run.loads.attempts) == 3)
    newest, _ = run.catalog.statuses("m")
    assert (newest.state, newest.code, newest.message) == (VersionState.LOADING, GrpcCode.OK, "")
    has_ended(run, GrpcCode.NOT_FOUND, "no model in version 2")
    run.lifecycle.poll()
    time.sleep(0.05)
    assert run.loads.attempts.count(("m", 2)) == 2


def test_versions_that_wait_for_their_next_try_hold_nothing_up(tmp_path: Path) -> None:
    """However many fail, one that can be loaded is; neither who waits for the model nor the end waits for them."""
    made = Run(tmp_path, retry=Retry(5, 600.0), load_threads=1)
    made.loads.failing |= {1, 2, 3}
    made.add(1, 2, 3, 4)
    made.lifecycle.reload([made.source(Policy(every=True))])
    made.lifecycle.wait_until_available(["m"])
    assert made.serves(4)
    eventually(lambda: len(made.loads.attempts) == 4)
    assert made.states()[1] is VersionState.LOADING
    made.lifecycle.close()  # returns before this test's time is over, which a retry's is not


def test_a_version_that_goes_while_it_loads_never_serves(run: Run) -> None:
    """The one before it answers all along; its load has ended as cancelled, and its memory is given back."""
    run.add(1)
    run.lifecycle.reload([run.source()])
    run.lifecycle.wait_until_available(["m"])
    run.loads.gate.clear()
    run.add(2)
    run.lifecycle.poll()
    eventually(lambda: run.loads.attempts == [("m", 1), ("m", 2)])
    (run.base / "2").rmdir()
    run.lifecycle.poll()
    has_ended(run, GrpcCode.CANCELLED, "Loading of servable cancelled")
    assert run.loads.backends["m", 2].closed


def test_a_specific_version_that_is_not_there_is_told_once(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.add(1)
    run.lifecycle.reload([run.source(Policy(specific=(1, 9)))])
    run.lifecycle.wait_until_available(["m"])
    run.lifecycle.poll()
    assert run.serves(1)
    assert caplog.text.count("Version 9 of servable m, which was requested to be served as a 'specific'") == 1
    run.add(9)
    run.lifecycle.poll()
    eventually(lambda: run.serves(1, 9))


def test_labels_may_come_before_their_versions_by_a_flag(tmp_path: Path) -> None:
    """A new label may; none moves to a version that is not there."""
    made = Run(tmp_path, labels_for_unavailable=True)
    made.add(1)
    made.lifecycle.reload([made.source(stable=1)])
    made.lifecycle.wait_until_available(["m"])
    with pytest.raises(ServingError, match="not currently available"):
        made.lifecycle.reload([made.source(stable=9)])
    made.lifecycle.close()
