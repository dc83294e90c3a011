"""Times of stages, as the run adds them up."""

from tfs_proxy.observe.stage_counts import StageCounts


def test_a_forged_report_adds_no_series() -> None:
    """A script can write to the control API, too."""
    run = StageCounts()
    run.set_models(["m"])
    run.add(((("made up", "m", (1,) * 19, 1.0), ("read", "m", (1, 2), 1.0), ("read", "m", (), 1.0)),) * 5)

    assert not any(metric.distributions for metric in run.measure())
