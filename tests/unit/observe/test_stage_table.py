"""The workers' tables of stages, which the supervisor adds up."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import Distribution
from tfs_proxy.observe.request_counts import KnownModels
from tfs_proxy.observe.request_record import CONVERT, READ, RequestRecord
from tfs_proxy.observe.stage_table import StageLayout, StageTable, StageTables

KNOWN = KnownModels("m", {"m": (1,), "n": ()})


def request(model: str, convert_seconds: float, records: int | None = None) -> RequestRecord:
    record = RequestRecord("an-id")
    record.model, record.records = model, records
    record.seconds[READ], record.seconds[CONVERT] = 0.002, convert_seconds
    return record


def measured(tables: StageTables) -> dict[tuple[str, ...], Distribution]:
    """The histograms of stages, and of records under the model alone."""
    metrics = {metric.description: metric.distributions or {} for metric in tables.measure()}
    return {**metrics[catalogue.STAGE_DURATION], **metrics[catalogue.REQUEST_RECORDS]}


def test_what_workers_add_is_measured(tmp_path: Path) -> None:
    layout = StageLayout(KNOWN)
    one, other = StageTable(tmp_path / "stages", layout), StageTable(tmp_path / "stages", layout)
    one.add(request("m", 0.003, records=3))
    other.add(request("m", 0.3, records=100_000))
    other.add(request("hostile", 90.0))
    measures = measured(StageTables(tmp_path / "stages", KNOWN))

    assert set(measures) == {("read", "m"), ("convert", "m"), ("read", "other"), ("convert", "other"), ("m",)}
    assert sum(measures["read", "m"].counts) == 2
    assert abs(measures["convert", "m"].total - 0.303) < 1e-9
    assert measures["convert", "other"].counts[-1] == 1
    assert (measures["m",].counts[2], measures["m",].counts[-1], measures["m",].total) == (1, 1, 100_003)


def test_the_counts_of_a_worker_outlive_it(tmp_path: Path) -> None:
    folder = tmp_path / "stages"
    StageTable(folder, StageLayout(KNOWN)).add(request("m", 0.003))
    (table,) = folder.iterdir()
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    table.rename(folder / f"{ended.pid}-{time.time_ns()}")
    tables = StageTables(folder, KNOWN)
    StageTable(folder, StageLayout(KNOWN)).add(request("m", 0.003))

    for _ in range(2):
        assert sum(measured(tables)["convert", "m"].counts) == 2
    assert [path.name.partition("-")[0] for path in folder.iterdir()] == [str(os.getpid())]
