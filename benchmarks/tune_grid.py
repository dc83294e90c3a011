"""Compares what `tfs-proxy tune` finds with the best of a whole grid of at most 36 points.

``make bench-tune`` runs it. The grid is named and measured point by point, then its best point and the one
that the search found are measured in turns, on the same machine: the ratio of the medians is the result.
Without MODEL it takes a small model behind a script, and the same model alone.
"""

import argparse
import itertools
import logging
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stack import export_models, only

from tfs_proxy.commands.tune import duration_ms
from tfs_proxy.run.host.workspace import temporary_workspace
from tfs_proxy.settings.settings import Settings, inherited_environment
from tfs_proxy.tools.tune.axes import Point, Space
from tfs_proxy.tools.tune.run import TuneRequest, Tuning

MOST_POINTS = 36
SCRIPT = """
def input_handler(data, context):
    return data.read().decode("utf-8")


def output_handler(response, context):
    return response.content, "application/json"
"""


def grid_of(space: Space) -> list[Point]:
    """The points of as many axes, from the first, as stay within `MOST_POINTS`; others keep their defaults."""
    points = [space.default]
    for place, axis in enumerate(space.axes):
        values = range(len(axis.options))
        wider = {
            space.canonical((*p[:place], v, *p[place + 1 :])) for p, v in itertools.product(points, values)
        }
        if len(wider) <= MOST_POINTS:
            points = sorted(wider)
    return points


def measured(tuning: Tuning, point: Point, times: int, p99_ms: float) -> float:
    """The score of one trial, which is printed."""
    score = tuning.measure(point, times).score(p99_ms)
    print(f"{score:8.0f}  {tuning.space.label(point)}", flush=True)
    return score


def compare(model: Path, p99_ms: float, budget: float, rounds: int) -> float:
    """Search and grid of one model; the rate of what was found, compared with the best of the grid."""
    with temporary_workspace(None, "tune-grid-") as workspace:
        request = TuneRequest(str(model), p99_ms, budget, [], (), inherited_environment())
        tuning = Tuning(request, Settings.from_env(), workspace)
        grid = grid_of(tuning.space)
        print(
            f"\n## {model.name}: a grid of {len(grid)} points\n", *map(tuning.space.label, grid), sep="\n- "
        )
        tuning.run()
        findings = tuning.findings()
        found = findings.ranked[0].point
        scores = {point: measured(tuning, point, 1, p99_ms) for point in grid}
        finalists = sorted(grid, key=lambda point: scores[point], reverse=True)[:3]
        again = {point: measured(tuning, point, 2, p99_ms) for point in finalists}
        best = max(finalists, key=lambda point: again[point])
        turns = [[measured(tuning, point, 3, p99_ms) for point in (found, best)] for _ in range(rounds)]
        ours, theirs = map(statistics.median, zip(*turns, strict=True))
    trials = sum(len(finding.trials) for finding in findings.ranked)
    print(f"\nThe search took {findings.seconds:.0f} s and {trials} trials: {tuning.space.label(found)}")
    print(f"The best of the grid: {tuning.space.label(best)}")
    print(f"Ratio: {ours / theirs:.3f} ({ours:.0f} / {theirs:.0f} requests/s, {rounds} alternating rounds)")
    if found == best:
        print("They are the same settings, so the ratio is the noise of this machine.")
        return 1.0
    return float(ours / theirs)


def example_models(folder: Path) -> Iterator[Path]:
    """A small model behind a script, and alone."""
    exported = export_models(folder / "exported")
    scripted = only(exported / "tiny", folder / "script")
    (scripted / "code").mkdir()
    (scripted / "code" / "inference.py").write_text(SCRIPT)
    yield scripted
    yield only(exported / "tiny", folder / "alone")


def main() -> None:
    """Compare, and end with 1 if what was found is more than 10 % below the grid's best."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="*", type=Path, metavar="MODEL")
    parser.add_argument("--p99", type=duration_ms, default=50.0, metavar="TIME")
    parser.add_argument("--budget", type=float, default=300.0, metavar="SECONDS")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    with tempfile.TemporaryDirectory() as folder:
        models = arguments.model or example_models(Path(folder))
        ratios = [compare(model, arguments.p99, arguments.budget, arguments.rounds) for model in models]
    sys.exit(min(ratios) < 0.9)


if __name__ == "__main__":
    main()
