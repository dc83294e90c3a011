"""One fuzzer as a process: atheris feeds parsers, guided by the coverage of this package.

`python -m attack.fuzz_one 'CSV,npy' REPORT FAULTS [libFuzzer's flags]`: the first byte of an input picks the parser.
It counts in the file REPORT, and keeps an input of each kind of fault in the folder FAULTS; a fault does not end it.
"""

import json
import resource
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tfs_proxy"]):
    from attack.parsers import PARSERS

MEMORY_BYTES = 4 << 30
NOTED_EVERY = 100


class Fuzzer:
    """Runs parsers and counts, by parser: inputs, those that were refused, and faults by kind."""

    def __init__(self, names: Sequence[str], report: Path, kept: Path) -> None:
        self._names = names
        self._report = report
        self._kept = kept
        self._inputs: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._faults: dict[str, Counter[str]] = {name: Counter() for name in names}

    def one(self, data: bytes) -> None:
        name = self._names[data[0] % len(self._names)] if data else self._names[0]
        self._inputs[name] += 1
        try:
            PARSERS[name].run(data[1:])
        except PARSERS[name].refusals:
            self._refused[name] += 1
        except Exception as error:  # noqa: BLE001 - whatever is not a refusal is what is looked for
            self._keep(name, data[1:], error)
        if self._inputs.total() % NOTED_EVERY == 0:  # libFuzzer ends the process without a word to Python
            self._note()

    def _note(self) -> None:
        counts = {"inputs": self._inputs, "refused": self._refused, "faults": self._faults}
        partial = self._report.with_suffix(".partial")
        partial.write_text(json.dumps(counts))
        partial.replace(self._report)

    def _keep(self, name: str, data: bytes, error: Exception) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        own = next((frame for frame in reversed(frames) if "src/tfs_proxy" in frame.filename), frames[-1])
        kind = f"{type(error).__name__} at {Path(own.filename).name}:{own.lineno}"
        self._faults[name][kind] += 1
        if self._faults[name][kind] == 1:
            self._kept.mkdir(parents=True, exist_ok=True)
            stem = f"{name.replace('/', '-')}-{sha256(data).hexdigest()[:8]}"
            (self._kept / f"{stem}.bin").write_bytes(data)
            (self._kept / f"{stem}.txt").write_text("".join(traceback.format_exception(error)))


def main() -> None:
    """Fuzz until libFuzzer's flags say that it is enough."""
    names, report, kept, *flags = sys.argv[1:]
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    fuzzer = Fuzzer(names.split(","), Path(report), Path(kept))
    atheris.Setup([sys.argv[0], *flags], fuzzer.one, internal_libfuzzer=True)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
