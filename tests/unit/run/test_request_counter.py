"""The requests of a run whose models come and go."""

from collections.abc import Mapping
from pathlib import Path

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.request_counts import KnownModels
from tfs_proxy.observe.request_record import RequestRecord
from tfs_proxy.observe.stage_table import StageLayout, StageTable
from tfs_proxy.run.logs.run_records import RequestCounter

LINE = b"200 0.003 - a - 100 20 POST /models/a/invoke HTTP/1.1\n"


def test_before_models_are_counted_none_is_forgotten(tmp_path: Path) -> None:
    """A run that ends early may say that its models have gone."""
    (tmp_path / "requests").write_bytes(LINE)
    counter = RequestCounter(tmp_path / "requests", tmp_path / "stages")

    counter.forget("a")

    assert counter.counts.models is None


def test_counts_go_on_when_other_models_are_served(tmp_path: Path) -> None:
    """Requests and stages of models that stay are added up over generations; those of models that go are dropped."""
    lines = tmp_path / "requests"
    lines.touch()
    counter = RequestCounter(lines, tmp_path / "0")
    counter.expect(KnownModels("a", {"a": (1,), "gone": (1,)}))
    generations: list[Mapping[str, tuple[int, ...]]] = [{"a": (1, 2)}, {"a": (2,), "b": (1,)}, {"a": (3,)}]
    for number, models in enumerate(generations, 1):
        table = StageTable(tmp_path / str(number - 1), StageLayout(counter_models(counter)))
        record = RequestRecord("id")
        record.model, record.records = "a", 1
        table.add(record)
        counter.expect_other_models(KnownModels("a", models), tmp_path / str(number))
        lines.write_bytes(LINE * number)

    measured = {metric.description.name: metric for metric in counter.measure()}
    assert dict(measured[catalogue.MODEL_REQUESTS.name].points or {}) == {("a", "latest", "ok"): 3}
    records = measured[catalogue.REQUEST_RECORDS.name].distributions or {}
    assert {labels: sum(of.counts) for labels, of in records.items()} == {("a",): 3}


def counter_models(counter: RequestCounter) -> KnownModels:
    """The models that requests are counted for now."""
    assert counter.counts.models is not None
    return counter.counts.models.known
