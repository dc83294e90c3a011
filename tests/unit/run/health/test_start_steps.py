"""The steps of a start and what each took."""

from tfs_proxy.run.readiness import StartSteps


def test_each_step_has_its_seconds() -> None:
    """The current one so far; after the end nothing grows any more."""
    now = [10.0]
    steps = StartSteps(lambda: now[0])
    now[0] = 11.0
    steps.begin("starting: loading the models")
    now[0] = 14.0
    assert steps.seconds() == {"starting": 1.0, "loading the models": 3.0}

    steps.end()
    now[0] = 20.0
    steps.end()
    assert steps.seconds() == {"starting": 1.0, "loading the models": 3.0}
