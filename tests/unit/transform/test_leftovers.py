"""Which objects a run still has to do, after what earlier runs have finished."""

import logging
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from tfs_proxy.transform.files import InputObject, OutputSink
from tfs_proxy.transform.job import ExecutionPlan, Job
from tfs_proxy.transform.leftovers import find_leftovers, log_plan
from tfs_proxy.transform.options import TransformOptions

ITEMS = [InputObject(f"/in/{name}", name, size, "1") for name, size in (("a", 10), ("b", 20), ("c", 30))]


@dataclass
class FinishedTarget:
    """Knows what jobs of one fingerprint have finished; nothing is written to it."""

    fingerprint: str
    names_and_versions: dict[str, str]

    def finished(self, fingerprint: str) -> dict[str, str]:
        return self.names_and_versions if fingerprint == self.fingerprint else {}

    def prepare(self, items: list[InputObject]) -> None:
        raise AssertionError("nothing is to be prepared")

    def create(self, item: InputObject, ending: str, fingerprint: str) -> OutputSink:
        raise AssertionError("nothing is to be written")

    def remove(self, name: str, ending: str) -> None:
        raise AssertionError("nothing is to be removed")


@pytest.fixture
def options(tmp_path: Path) -> TransformOptions:
    model = tmp_path / "model.tar.gz"
    model.write_bytes(b"a model")
    return TransformOptions(job=Job(input="/in", output="/out"), model=str(model))


def fingerprint_of(options: TransformOptions) -> str:
    return find_leftovers(options, ITEMS, FinishedTarget("", {})).fingerprint


def test_finished_objects_are_left_out(options: TransformOptions) -> None:
    """Those of the same version are; they count as skipped, and their bytes as done."""
    target = FinishedTarget(fingerprint_of(options), {"a": "1", "b": "an older version", "gone": "1"})
    leftovers = find_leftovers(options, ITEMS, target)
    assert [item.name for item in leftovers.items] == ["b", "c"]
    assert leftovers.statistics.counts["skipped"] == 1
    workload = leftovers.statistics.workload
    assert (workload.objects, workload.bytes, workload.finished_bytes) == (3, 60, 10)


def test_no_resume_does_everything_again(options: TransformOptions) -> None:
    """Whatever is finished."""
    target = FinishedTarget(fingerprint_of(options), {"a": "1"})
    leftovers = find_leftovers(replace(options, resume=False), ITEMS, target)
    assert leftovers.items == ITEMS


def test_another_model_does_everything_again(options: TransformOptions) -> None:
    """Outputs of the model that was there before are not this job's."""
    target = FinishedTarget(fingerprint_of(options), {"a": "1"})
    assert options.model is not None
    Path(options.model).write_bytes(b"another model")
    assert find_leftovers(options, ITEMS, target).items == ITEMS


def test_objects_that_are_too_large_are_announced(
    options: TransformOptions, caplog: pytest.LogCaptureFixture
) -> None:
    """Before anything is sent, with the name of the first."""
    with caplog.at_level(logging.INFO):
        log_plan(options, ExecutionPlan("MultiRecord", 15, 4), ITEMS)
    assert "2 object(s) are larger than MaxPayloadInMB allows and will fail; the first is b" in caplog.text
    assert "4 request(s) at once, MultiRecord" in caplog.text
