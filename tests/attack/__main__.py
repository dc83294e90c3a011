"""The attack as a program: runs its parts against real stacks, and writes the table that the documentation shows."""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from attack import amplification, answers, bombs, exhaustion, full_disk, fuzzing, kills, soak
from attack.findings import HEAD, Finding, fallen, table
from attack.fronts import Front, all_fronts, front_of, kinds, stack_of
from attack.raw_http import attack as raw_http
from support.model_fixtures import ROOT

MOST_KILLS = 24
"""Of one stack: the supervisor gives up on a process that dies again and again."""

TABLE = ROOT / "build" / "attack" / "table.md"


@dataclass(frozen=True, slots=True)
class Form:
    """How much there is of everything; no part begins ``seconds`` after the start."""

    parts: tuple[str, ...]
    seconds: float
    effort: fuzzing.Effort
    kills: int
    soak_seconds: float = 0


FORMS = {
    "long": Form(
        ("http", "slow", "bombs", "answers", "descriptors", "disk", "full", "kills", "fuzz"),
        840,
        fuzzing.Effort(20_000, 10),
        72,
    ),
    "soak": Form(("fuzz", "kills", "soak"), 3 * 3600, fuzzing.Effort(50_000, 300), 216, 3600),
}


def run(form: Form, folder: Path) -> Iterator[Finding]:
    end = time.monotonic() + form.seconds
    for name in form.parts:
        if time.monotonic() > end:
            yield Finding(name, "all", 1, 0, "there was no time left for it")
            continue
        began = time.monotonic()
        try:
            yield from PARTS[name](form, folder / name)
        except AssertionError as error:  # a stack that never came back
            yield Finding(name, "a stack", 1, 0, str(error))
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _on_all(attack: Callable[[Front], list[Finding]], _: Form, folder: Path) -> Iterator[Finding]:
    with all_fronts(folder) as fronts:
        for front in fronts:
            yield from attack(front)


def _slow(front: Front) -> list[Finding]:
    """The control API is behind a folder of its own: no client gets there."""
    return [] if front.name == "gunicorn" else exhaustion.slow_clients(front)


def _bombs(_: Form, folder: Path) -> Iterator[Finding]:
    with stack_of(kinds()[0], folder, {"TFS_PROXY_GRPC_PORT": "0"}) as stack:
        for bomb in bombs.BOMBS:
            yield from amplification.alone(stack, [bomb])
        yield amplification.together(stack, front_of(kinds()[0], stack))


def _kills(form: Form, folder: Path) -> Iterator[Finding]:
    for kind in kinds():
        rounds = math.ceil(form.kills / len(kinds()) / MOST_KILLS)
        yield from kills.findings(kind, [_killed(kind, folder, seed) for seed in range(rounds)])


def _killed(kind: str, folder: Path, seed: int) -> dict[str, kills.Account]:
    with stack_of(kind, folder / f"{kind}-{seed}") as stack:
        return kills.accounts(front_of(kind, stack), MOST_KILLS, seed)


def _soak(form: Form, folder: Path) -> Iterator[Finding]:
    with stack_of(kinds()[0], folder) as stack:
        yield soak.attack(front_of(kinds()[0], stack), form.soak_seconds)


def _fuzz(form: Form, folder: Path) -> Iterator[Finding]:
    if fuzzing.can_fuzz():
        yield from fuzzing.attack(folder, form.effort)


def _alone(attack: Callable[[Path], list[Finding]], _: Form, folder: Path) -> Iterator[Finding]:
    yield from attack(folder)


PARTS: Mapping[str, Callable[[Form, Path], Iterator[Finding]]] = {
    "http": partial(_on_all, lambda front: raw_http.attack([front])),
    "slow": partial(_on_all, _slow),
    "bombs": _bombs,
    "answers": partial(_alone, partial(answers.attack, calls=1000)),
    "descriptors": partial(_alone, exhaustion.descriptors),
    "disk": partial(_alone, exhaustion.disk),
    "full": partial(_alone, full_disk.attack),
    "kills": _kills,
    "fuzz": _fuzz,
    "soak": _soak,
}


def _until_cut_off(findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except KeyboardInterrupt:
        yield Finding("the rest", "all", 1, 0, "the run was cut off")


def main() -> int:
    """Print each line as it comes, write the table, and say by the exit status whether everything held."""
    parser = argparse.ArgumentParser(prog="attack", description=__doc__)
    parser.add_argument("--form", choices=FORMS, default="long")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="these parts alone")
    parser.add_argument("--table", type=Path, default=TABLE, help="where the table is written")
    chosen = parser.parse_args()
    form = FORMS[chosen.form]
    if chosen.only:
        form = Form(tuple(chosen.only), form.seconds, form.effort, form.kills, form.soak_seconds)
    findings = []
    print(HEAD, end="", flush=True)
    with tempfile.TemporaryDirectory(prefix="attack-") as folder:
        for finding in _until_cut_off(run(form, Path(folder))):
            findings.append(finding)
            print(finding.row(), end="", flush=True)
    chosen.table.parent.mkdir(parents=True, exist_ok=True)
    chosen.table.write_text(table(findings))
    return 1 if fallen(findings) else 0


if __name__ == "__main__":
    sys.exit(main())
