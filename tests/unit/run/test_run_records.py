"""Lines of requests on their way into counts and log: not too many at once, and all by the end."""

import os
from collections.abc import Mapping
from pathlib import Path

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.logs.entry import EntryHandler, LogConfig
from tfs_proxy.observe.request_counts import KnownModels
from tfs_proxy.run.logs import RunRecords
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.layout import Workspace


def reader(folder: Path, log: Path) -> RunRecords:
    """A reader that shows each line of ``folder`` in ``log``."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    handler = EntryHandler(LogConfig("json", descriptor=descriptor))
    settings = Settings.from_env({"TFS_PROXY_ACCESS_LOG": "all"})
    return RunRecords(settings, {}, Workspace(folder), handler)


LINE = b"200 0.003 - a - 100 20 POST /models/a/invoke HTTP/1.1\n"


def test_counts_go_on_when_other_models_are_served(tmp_path: Path) -> None:
    """Requests of models that stay are added up over generations; those of models that go are dropped."""
    lines = tmp_path / "requests"
    lines.touch()
    records = reader(tmp_path, tmp_path / "log")
    records.expect(KnownModels("a", {"a": (1,), "gone": (1,)}))
    generations: list[Mapping[str, tuple[int, ...]]] = [{"a": (1, 2)}, {"a": (2,), "b": (1,)}, {"a": (3,)}]
    for number, models in enumerate(generations, 1):
        records.expect(KnownModels("a", models))
        lines.write_bytes(LINE * number)

    measured = {metric.description.name: metric for metric in records.measure()}
    assert dict(measured[catalogue.MODEL_REQUESTS.name].points or {}) == {("a", "latest", "ok"): 3}
