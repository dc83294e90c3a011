"""Compare the results of a transform job with the SavedModel, called without any server.

    python check_results.py                       build/results, one .out for each photograph
    python check_results.py ../resnet50_tfrecord/build/results   one line for each record, in order

Every photograph must have a result, in its place, with the class and probability that the model gives.
"""

import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

HERE = Path(__file__).resolve().parent
PHOTOGRAPHS = HERE / "build" / "photographs"
AT_ONCE = 16


def main() -> None:
    """Compare all; ends with an error at the first difference."""
    results = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "build" / "results"
    photographs = sorted(PHOTOGRAPHS.glob("*.jpg"))
    found = list(lines(results))
    assert len(found) == len(photographs), f"{len(found)} results for {len(photographs)} photographs"
    checked = 0
    for begin, (classes, probabilities) in called_directly(photographs):
        for place in range(len(classes)):
            (prediction,) = json.loads(found[begin + place])["predictions"]
            name = photographs[begin + place].name
            assert prediction["classes"] == int(classes[place]), name
            difference = abs(max(prediction["probabilities"]) - float(probabilities[place].max()))
            assert difference < 1e-4, f"{name}: {difference}"
            checked += 1
    print(f"{checked} results are what the model answers, each in its place")


def lines(results: Path) -> Iterator[str]:
    """The results in the order of the photographs, from files of one or of many."""
    for path in sorted(results.glob("*.out")):
        text = path.read_text()
        yield from [text] if path.name.endswith(".jpg.out") else text.splitlines()


def called_directly(photographs: list[Path]) -> Iterator:
    """What the model in the archive answers, some photographs at once: where they begin, and both outputs."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(HERE / "build" / "model.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        model = tf.saved_model.load(str(Path(folder) / "resnet50" / "1")).signatures["serving_default"]
        for begin in range(0, len(photographs), AT_ONCE):
            part = [path.read_bytes() for path in photographs[begin : begin + AT_ONCE]]
            outputs = model(image_bytes=tf.constant(part))
            yield begin, (outputs["classes"].numpy(), outputs["probabilities"].numpy())


if __name__ == "__main__":
    main()
