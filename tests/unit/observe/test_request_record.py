"""The record of one request: its stages, and who finds it."""

import contextlib

import pytest

from tfs_proxy.observe.request_record import (
    CONVERT,
    INPUT_HANDLER,
    MODEL_SERVER,
    RequestRecord,
    handling,
    note_failed,
    stage,
)


def test_the_time_of_an_inner_stage_is_not_the_outer_one_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that asks the model from within `handler` has two stages, and no second counts twice."""
    times = iter([10.0, 11.0, 14.0, 20.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(times))
    with handling(RequestRecord("id", began=0.0)) as record, stage(INPUT_HANDLER), stage(MODEL_SERVER):
        pass
    assert (record.seconds[INPUT_HANDLER], record.seconds[MODEL_SERVER]) == (7.0, 3.0)


def test_the_innermost_stage_that_an_error_leaves_is_where_the_request_failed() -> None:
    """An outer stage that the same error leaves, and a later error, don't take its place."""
    with handling(RequestRecord("id")) as record:
        with contextlib.suppress(ValueError), stage(INPUT_HANDLER), stage(MODEL_SERVER):
            raise ValueError
        with contextlib.suppress(ValueError), stage(CONVERT):
            raise ValueError
        note_failed(CONVERT)
    assert (record.failed_stage, record.under_way) == (MODEL_SERVER, None)
