"""Files of prometheus_client's multiprocess mode, as the library writes them, and what is shown of them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.values import MultiProcessValue

from tfs_proxy.observe.catalogue import METRICS
from tfs_proxy.observe.script_metrics import MOST_SERIES, OURS, ScriptMetrics

LIVING, ENDED = os.getpid(), 4_194_305
"""Processes; the second is above what Linux allows."""

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write the value of a process; the folder may be that of a model."""

    def write(
        pid: int,
        kind: str,
        value: float,
        mode: str = "",
        at: float = 0.0,
        name: str = "n",
        model: str = "",
        **labels: str,
    ) -> None:
        (tmp_path / model).mkdir(exist_ok=True)
        monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / model))
        sample = f"{name}_total" if kind == "counter" else name
        of_process = MultiProcessValue(lambda: pid)  # type: ignore[no-untyped-call]
        of_process(kind, name, sample, labels, labels.values(), "Help.", mode).set(value, at)

    return write


def lines(metrics: ScriptMetrics, folder: Path) -> list[str]:
    return [line for family in metrics.read({"": folder}) for line in family.samples]


@pytest.mark.parametrize(
    ("mode", "shown"),
    [
        ("all", ["n 2.0"]),
        ("livesum", ["n 2.0"]),
        ("liveall", [f'n{{pid="{LIVING}"}} 2.0']),
        ("sum", ["n 7.0"]),
        ("min", ["n 2.0"]),
        ("max", ["n 5.0"]),
        ("livemax", ["n 2.0"]),
        ("mostrecent", ["n 5.0"]),
    ],
)
def test_a_gauge_has_the_mode_that_the_script_names(
    tmp_path: Path, write: Write, mode: str, shown: list[str]
) -> None:
    """Of a process that lives and one that has ended, whose file is removed; the library's default is a sum."""
    write(LIVING, "gauge", 2, mode, at=1)
    write(ENDED, "gauge", 5, mode, at=2)
    metrics = ScriptMetrics("")

    assert [lines(metrics, tmp_path) for _ in range(2)] == [shown, shown]
    assert [file.name for file in tmp_path.iterdir()] == [f"gauge_{mode}_{LIVING}.db"]


def test_series_above_the_limit_are_left_out(
    tmp_path: Path, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of the first scrape stay, however the others sort; the log says so once."""
    for number in range(MOST_SERIES):
        write(LIVING, "counter", 1, a=str(number))
    metrics = ScriptMetrics("")
    first = lines(metrics, tmp_path)
    write(ENDED, "counter", 1, a="!")
    write(LIVING, "counter", 2, a="0")

    assert len(first) == MOST_SERIES
    assert (
        set(lines(metrics, tmp_path)) == set(lines(metrics, tmp_path)) == {*first[1:], 'n_total{a="0"} 2.0'}
    )
    assert [record.message for record in caplog.records] == [
        f"metrics of the script are left out of /metrics: there are more than {MOST_SERIES} series, one is of 'n'"
    ]


@pytest.mark.parametrize(
    "name", ["tfs_proxy_mine", ":tensorflow:serving:request_count", "é", "a 1\nb", "n_total"]
)
def test_names_that_are_taken_or_not_legal_are_left_out(tmp_path: Path, write: Write, name: str) -> None:
    """Ours and the model servers', and those that OpenMetrics gives to one metric alone."""
    write(LIVING, "counter", 1)
    write(LIVING, "gauge", 1, "all", name=name)

    assert lines(ScriptMetrics(""), tmp_path) == ["n_total 1.0"]


def test_all_our_names_begin_as_those_that_are_left_out() -> None:
    """So no metric of the catalogue can be a script's, too."""
    assert [metric.name for metric in METRICS if not OURS.match(metric.name)] == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 64,
        b"\xff" * 64,
        b"\x40\0\0\0\0\0\0\0\xe4\xff\xff\xff" + b"\0" * 52,
        b"\xff\xff\xff\x7f" + b"a" * 99,
    ],
)
def test_a_damaged_file_is_left_out(tmp_path: Path, write: Write, content: bytes) -> None:
    """Empty, without a length, with one that leads nowhere: the others are shown, and it goes with its process."""
    write(LIVING, "counter", 1)
    damaged = [tmp_path / f"{kind}_{pid}.db" for kind, pid in (("summary", LIVING), ("counter", ENDED))]
    for file in damaged:
        file.write_bytes(content)

    assert lines(ScriptMetrics(""), tmp_path) == ["n_total 1.0"]
    assert [file.exists() for file in damaged] == [True, False]
