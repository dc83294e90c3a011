"""The metrics of several stacks as those of one run."""

from tfs_proxy.observe.metric import Distribution, MeasuredMetric, MetricDescription, MetricKind, added_up

WORKERS = MetricDescription("workers", MetricKind.GAUGE, "Workers.", ("process",))
SECONDS = MetricDescription("seconds", MetricKind.HISTOGRAM, "Seconds.")
BOUNDS = (1.0, 2.0)


def test_points_of_the_same_labels_are_added() -> None:
    """Others stand side by side, under one description."""
    measured = [
        MeasuredMetric(WORKERS, {("a",): 1.0, ("b",): 2.0}),
        MeasuredMetric(WORKERS, {("b",): 3.0, ("c",): 4.0}),
    ]

    assert added_up(measured) == [MeasuredMetric(WORKERS, {("a",): 1.0, ("b",): 5.0, ("c",): 4.0})]


def test_distributions_are_added_bucket_by_bucket() -> None:
    """And so are their sums."""
    one, other = Distribution(BOUNDS, (1, 2, 3), 5.0), Distribution(BOUNDS, (10, 20, 30), 50.0)
    measured = [
        MeasuredMetric(SECONDS, distributions={(): one}),
        MeasuredMetric(SECONDS, distributions={(): other}),
    ]

    assert added_up(measured) == [
        MeasuredMetric(SECONDS, distributions={(): Distribution(BOUNDS, (11, 22, 33), 55.0)})
    ]


def test_each_metric_stands_where_it_was_first_seen() -> None:
    """A metric without values stays, so that its description is shown."""
    measured = [MeasuredMetric(SECONDS), MeasuredMetric(WORKERS, {("a",): 1.0}), MeasuredMetric(SECONDS)]

    assert [metric.description for metric in added_up(measured)] == [SECONDS, WORKERS]
