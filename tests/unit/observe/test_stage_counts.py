"""Times of stages, as workers report and the run adds them up."""

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import Distribution
from tfs_proxy.observe.request_record import CONVERT, READ, RequestRecord
from tfs_proxy.observe.stage_counts import StageCounts


def counts(*known: str) -> StageCounts:
    made = StageCounts()
    made.set_models(known)
    return made


def request(model: str, convert_seconds: float, records: int | None = None) -> RequestRecord:
    record = RequestRecord("an-id")
    record.model, record.records = model, records
    record.seconds[READ], record.seconds[CONVERT] = 0.002, convert_seconds
    return record


def measured(of: StageCounts) -> dict[tuple[str, ...], Distribution]:
    """The histograms of stages, and of records under the model alone."""
    metrics = {metric.description: metric.distributions or {} for metric in of.measure()}
    return {**metrics[catalogue.STAGE_DURATION], **metrics[catalogue.REQUEST_RECORDS]}


def test_a_model_that_has_gone_has_no_series() -> None:
    run = counts("m", "n")
    for model in ("m", "n"):
        run.note_end(request(model, 0.003, records=3))
    run.forget("m")

    assert set(measured(run)) == {("read", "n"), ("convert", "n"), ("n",)}


def test_a_forged_report_adds_no_series() -> None:
    """A script can write to the control API, too."""
    run = counts("m")
    run.add(((("made up", "m", (1,) * 19, 1.0), ("read", "m", (1, 2), 1.0), ("read", "m", (), 1.0)),) * 5)

    assert measured(run) == {}
