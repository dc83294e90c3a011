"""The memory that large answers leave behind: many calls of each door, one after the other."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import grpc
import numpy as np

from attack.findings import Finding
from attack.fronts import kinds, stack_of
from attack.memory import MEGABYTE, anonymous_bytes
from support.grpc_calls import predict
from support.stack import Stack

MOST_MB = 100
"""What all processes together may hold more after the calls than after the first ten."""

FIRST = 10
FLOATS = 1_000_000
TEXT_FLOATS = 100_000
"""As text they take a megabyte; the same as binary takes four."""

MODEL = "half_plus_two"
BINARY_HEADER = "Inference-Header-Content-Length"


def attack(folder: Path, calls: int) -> list[Finding]:
    """One line per door: so many calls with answers of 1 or 4 MB each."""
    with stack_of(kinds()[0], folder, {"TFS_PROXY_GRPC_PORT": "0"}) as stack:
        return [_growth(stack, door, call, calls) for door, call in _doors(stack).items()]


def _growth(stack: Stack, door: str, call: Callable[[], None], calls: int) -> Finding:
    for _ in range(FIRST):
        call()
    before = anonymous_bytes(stack.process.pid)
    for _ in range(calls):
        call()
    grown = (anonymous_bytes(stack.process.pid) - before) // MEGABYTE
    held = calls if grown <= MOST_MB else 0
    return Finding(f"large answers through {door}", "all processes", calls, held, f"{grown} MB more are held")


def _doors(stack: Stack) -> Mapping[str, Callable[[], None]]:
    values = np.random.default_rng(1).random(FLOATS, np.float32)
    as_json = json.dumps({"instances": values[:TEXT_FLOATS].tolist()}).encode()
    tensor = {
        "name": "x",
        "shape": [FLOATS],
        "datatype": "FP32",
        "parameters": {"binary_data_size": 4 * FLOATS},
    }
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    as_binary = head + values.tobytes()
    json_type = {"Content-Type": "application/json"}

    def post(path: str, body: bytes, headers: Mapping[str, str], least: int) -> Callable[[], None]:
        def call() -> None:
            answer = stack.ask("POST", path, body, headers)
            assert (answer.status, len(answer.body) > least) == (200, True), answer.body[:300]

        return call

    def by_grpc() -> None:
        assert len(predict(channel, values)["y"]) == FLOATS

    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    channel = grpc.insecure_channel(stack.grpc, limits)
    return {
        "gRPC": by_grpc,
        "/v2": post(f"/v2/models/{MODEL}/infer", as_binary, {BINARY_HEADER: str(len(head))}, 4 * FLOATS),
        "/invocations": post("/invocations", as_json, json_type, TEXT_FLOATS),
        "/v1": post(f"/v1/models/{MODEL}:predict", as_json, json_type, TEXT_FLOATS),
    }
