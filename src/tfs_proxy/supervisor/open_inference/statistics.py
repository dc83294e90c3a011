"""Triton's statistics of models, from the same measurements as `/metrics`: pure.

Counts are exact. Times are those of whole requests, and of the stages that workers go through; a request
that bypasses the workers (nginx sends it to the model server, or it comes over gRPC) adds nothing to them.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import Distribution, MeasuredMetric
from tfs_proxy.observe.request_counts import Inferences
from tfs_proxy.observe.request_record import (
    CONVERT,
    INPUT_HANDLER,
    MODEL_SERVER,
    OUTPUT_HANDLER,
    READ,
    STAGES,
    WAIT,
    WRITE,
)

STAGES_OF: Mapping[str, Sequence[int]] = {
    "queue": (WAIT,),
    "compute_input": (READ, INPUT_HANDLER, CONVERT),
    "compute_infer": (MODEL_SERVER,),
    "compute_output": (OUTPUT_HANDLER, WRITE),
}
"""The stages here that correspond to Triton's."""

NEVER_KNOWN = ("cache_hit", "cache_miss")
"""Triton's clients look for these, too; nothing is cached here."""

_NS, _MS = 1e9, 1e3


class InferenceTimes(Struct, frozen=True):
    """Counts and seconds of inferences, and seconds of their stages.

    ``inferences`` are by model, version and success, as `ModelCounts` has them; ``stages`` by
    stage and model.
    """

    inferences: Mapping[tuple[str, str, bool], Inferences] = field(default_factory=dict)
    stages: Mapping[tuple[str, str], Distribution] = field(default_factory=dict)


def stage_times(measured: Iterable[MeasuredMetric]) -> Mapping[tuple[str, str], Distribution]:
    """The stages among what was measured, by stage and model."""
    of_stages = (metric for metric in measured if metric.description is catalogue.STAGE_DURATION)
    return {
        (stage, model): of
        for metric in of_stages
        for (stage, model), of in (metric.distributions or {}).items()
    }


def model_statistics(model: str, versions: Sequence[str], times: InferenceTimes) -> list[dict[str, object]]:
    """The entries of a model, one for each of ``versions``, which ascend; there is one at least.

    Requests that name no number, and the stages, which are not told apart by version, count for the last.
    """
    former, last = versions[:-1], versions[-1]
    sums = {(version, ok): Inferences() for version in versions for ok in (True, False)}
    for (of_model, label, ok), inferences in times.inferences.items():
        if of_model == model:
            _add(sums[label if label in former else last, ok], inferences)
    stages = {stage: of for (stage, of_model), of in times.stages.items() if of_model == model}
    _lift(sums, last, sum(of.total for of in stages.values()))
    return [
        _entry(model, version, (sums[version, True], sums[version, False]), stages if version == last else {})
        for version in versions
    ]


def _add(total: Inferences, more: Inferences) -> None:
    total.count += more.count
    total.seconds += more.seconds
    total.last_at = max(total.last_at, more.last_at)


def _lift(sums: Mapping[tuple[str, bool], Inferences], last: str, stage_seconds: float) -> None:
    """Makes no request shorter than its stages: nginx times requests by a clock of milliseconds."""
    missing_seconds = stage_seconds - sum(of.seconds for of in sums.values())
    if missing_seconds > 0 and sums[last, True].count:
        sums[last, True].seconds += missing_seconds


def _entry(
    model: str, version: str, ok_and_failed: tuple[Inferences, Inferences], stages: Mapping[str, Distribution]
) -> dict[str, object]:
    ok, failed = ok_and_failed
    return {
        "name": model,
        "version": version,
        "last_inference": round(max(ok.last_at, failed.last_at) * _MS),
        "inference_count": ok.count,
        "execution_count": ok.count,
        "inference_stats": {
            "success": _duration(ok.count, ok.seconds),
            "fail": _duration(failed.count, failed.seconds),
            # As in Triton, each has counted as many: perf_analyzer takes the version whose queue has.
            **{
                name: _duration(ok.count, _stage_seconds(numbers, stages))
                for name, numbers in STAGES_OF.items()
            },
            **{name: _duration(0, 0.0) for name in NEVER_KNOWN},
        },
        "batch_stats": [],
    }


def _stage_seconds(numbers: Sequence[int], stages: Mapping[str, Distribution]) -> float:
    return sum(stages[STAGES[number]].total for number in numbers if STAGES[number] in stages)


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * _NS)}
