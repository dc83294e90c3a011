"""Asks a release of the chart from within its cluster, and ends with 1 if the answers are not right.

    http URL N; grpc ADDRESS N; load URL N,M SECONDS; shares URL HOST N PERCENT

N and M are what the models of cluster_models.py add. It runs in a pod of the image, as text: `python -c`.
"""

import json
import sys
import time
import urllib.request
from collections import Counter

import grpc

from tfs_proxy.wire.protos import PredictRequest, PredictResponse

HEADERS = {"Content-Type": "application/json"}
MOST_OFF = 8
"""Percent by which the share of a canary may differ from its weight in half a minute."""

BODY = json.dumps({"instances": [1.0]}).encode()


def ask(url: str, headers: dict[str, str] = HEADERS) -> str:
    """The number that the model added, or what the request failed with; each has a connection of its own."""
    try:
        request = urllib.request.Request(f"{url}/invocations", BODY, headers)  # noqa: S310 - of this cluster
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return str(round(json.load(answer)["predictions"][0]) - 1)
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def ask_grpc(address: str) -> str:
    """The same by TensorFlow Serving's Predict."""
    request = PredictRequest()
    request.model_spec.name = "plus"
    request.inputs["x"].dtype = 1
    request.inputs["x"].tensor_shape.dim.add(size=1)
    request.inputs["x"].float_val.append(1.0)
    with grpc.insecure_channel(address) as channel:
        predict = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        answer = PredictResponse.FromString(predict(request.SerializeToString(), timeout=30))
    return str(round(answer.outputs["y"].float_val[0]) - 1)


def counted(url: str, seconds: float, headers: dict[str, str] = HEADERS) -> Counter[str]:
    """Answers in so many seconds, one request after the other."""
    answers = Counter[str]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answers[ask(url, headers)] += 1
    return answers


def main(words: list[str]) -> bool:
    """Do what the command line says, and print what came; whether it was right."""
    match words:
        case ["http", url, wanted]:
            answers = Counter([ask(url)])
            right = set(answers) == {wanted}
        case ["grpc", address, wanted]:
            answers = Counter([ask_grpc(address)])
            right = set(answers) == {wanted}
        case ["load", url, wanted, seconds]:
            answers = counted(url, float(seconds))
            right = set(answers) == set(wanted.split(","))
        case ["shares", url, host, canary, percent]:
            answers = counted(url, 30, {**HEADERS, "Host": host})
            share = 100 * answers[canary] / answers.total()
            right = abs(share - float(percent)) < MOST_OFF and all(answer.isdecimal() for answer in answers)
        case _:
            sys.exit(__doc__)
    print(words[0], "right" if right else "WRONG", dict(answers), flush=True)
    return right


if __name__ == "__main__":
    sys.exit(not main(sys.argv[1:]))
