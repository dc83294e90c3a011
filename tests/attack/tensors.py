"""Seeded requests with odd tensors against the embedded server as a child: shapes, types, nesting and contents.

Both APIs get what a signature takes and what none does. Each request has to be answered, in words: neither
the process nor a request of it may end otherwise.
"""

import contextlib
import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import grpc

from attack.findings import Finding
from attack.fronts import saved_models
from attack.fuzzing import FAULTS as FAULTS_FOLDER
from support.embedded_client import ANY_SIZE, PREDICTION
from support.model_fixtures import EmbeddedServer, serving_all
from support.running import LOOPBACK
from tfs_proxy.values.signature import CLASSIFY_METHOD, REGRESS_METHOD
from tfs_proxy.wire import protos
from tfs_proxy.wire.data_types import DataType

THREADS = 4
SECONDS = 60.0
FLAGS = ((), ("--enable_batching",))
FAULTS = frozenset({"500", "502", "cut", "UNKNOWN", "INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED"})
SHOWN_CHARACTERS = 100
FEW_ELEMENTS, MOST_ELEMENTS = 40, 3000
"""Most elements of nearly all tensors, and of all that have them; shapes may claim any number."""

MODELS = ("echo", "reshaping", "regress_classify")
LABELLED = ("regress_x_to_y", "classify_x_to_y", "classify_labels", "serving_default", "")
RANKS = (0, *(1, 2, 3) * 4, 4, 8, 31, 32, 33, 34, 62, 63, 64, 65, 253, 254, 255, 300)
SIZES = (0, 1, 1, 1, 1, 1, 2, 2, 3, 5, 17)
ODD_SIZES = (-1, -(2**63), 2**31 - 1, 2**31, 2**62, 2**63 - 1, 60_000)
EXAMPLES: Mapping[str, Callable[[], Any]] = {
    "Classify": protos.ClassificationRequest,
    "Regress": protos.RegressionRequest,
    "MultiInference": protos.MultiInferenceRequest,
}
KINDS = tuple(each.name.removeprefix("DT_").lower() for each in DataType if each)
OF_JSON = {
    "string": "string",
    "bool": "bool",
    "float": "float32",
    "double": "float64",
    "int64": "int64",
    "uint8": "uint8",
    "int32": "int32",
}
RESHAPED = ("string", "float", "int64")
LEAVES: tuple[Any, ...] = (
    0, 1, -1, 255, 256, 2**31, 2**63 - 1, 2**63, 2**64, 10**40, 0.5, 1e38, 1e39, 1e308, -0.0, float("nan"),
    float("inf"), True, False, None, "", "a", "\ud800", "\0", "ü" * 40, {"b64": "YQ=="}, {"b64": "?"}, {}, [],
)  # fmt: skip
LISTS = (
    "half_val",
    "float_val",
    "double_val",
    "int_val",
    "string_val",
    "scomplex_val",
    "int64_val",
    "bool_val",
    "dcomplex_val",
    "uint32_val",
    "uint64_val",
    "float8_val",
)
WHOLE = frozenset({"half_val", "int_val", "int64_val", "uint32_val", "uint64_val"})


class Generator:
    """Requests of one seed; each is a path with a body of JSON, or a method with a message."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def requests(self) -> Iterator[tuple[str, bytes]]:
        make: tuple[Callable[[], tuple[str, bytes]], ...] = (
            self._rows,
            self._rows,
            self._labelled,
            self._call,
            self._call,
            self._examples,
        )
        while True:
            target, body = self._random.choice(make)()
            yield target, self._broken(body) if self._chance(0.05) else body

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _shape(self) -> list[int]:
        """Few elements, whatever the rank."""
        shape: list[int] = []
        count, most = 1, MOST_ELEMENTS if self._chance(0.01) else FEW_ELEMENTS
        for _ in range(self._random.choice(RANKS)):
            size = self._random.choice(SIZES)
            shape.append(size if count * size <= most else 1)
            count *= shape[-1] or 1
        return shape

    def _named(self, shape: list[int]) -> list[int]:
        """A shape that is only named: mostly of as many elements as this one, of another rank, or any."""
        ones = max(0, self._random.choice(RANKS) - len(shape))
        named = self._random.sample(shape, len(shape)) + [1] * ones
        if self._chance(0.7):
            return named
        return [self._random.choice(ODD_SIZES) if self._chance(0.1) else size for size in named]

    def _nested(self, shape: list[int], leaf: Callable[[], Any]) -> Any:
        """Lists in lists, of which a few are ragged or mixed."""
        if not shape:
            return leaf()
        size = shape[0] + (self._chance(0.01) and self._random.choice((-1, 1)))
        listed = [self._nested(shape[1:], leaf) for _ in range(size)]
        return leaf() if self._chance(0.005) else listed

    def _leaf(self, kind: str) -> Callable[[], Any]:
        plain = {"string": "a", "bool": True}.get(kind, 1)
        odd = self._chance(0.3)
        return lambda: self._random.choice(LEAVES) if odd and self._chance(0.2) else plain

    def _rows(self) -> tuple[str, bytes]:
        model = self._random.choice(MODELS[:2])
        kind = self._random.choice(RESHAPED if model == "reshaping" else tuple(OF_JSON))
        shape = self._shape()
        x = self._nested(shape, self._leaf(kind))
        form = self._random.choice(("instances", "inputs"))
        value, signature = x, OF_JSON[kind]
        if model == "reshaping":
            value = {"x": x, "shape": self._named(shape)}
            value = [value] * self._random.choice((1, 2)) if form == "instances" else value
        elif self._chance(0.2):
            value = {"x": x} if form == "inputs" else [{"x": x}]
        document = {form: value, "signature_name": "" if self._chance(0.02) else signature}
        return f"/v1/models/{model}:predict", self._text(document)

    def _text(self, document: Any) -> bytes:
        text = json.dumps(document)
        if self._chance(0.02):
            deep = self._random.choice((33, 65, 500, 1100, 20_000))
            text = text.replace("1", "[" * deep + "1" + "]" * deep, 1)
        return text.encode()

    def _labelled(self) -> tuple[str, bytes]:
        def feature() -> Any:
            return self._nested(
                self._shape()[: self._random.choice((0, 1, 1, 1, 2))],
                self._leaf(self._random.choice(("string", "float", "int64"))),
            )

        examples = [
            {name: feature() for name in ("x", "x2", "y")[: self._random.randrange(4)]}
            for _ in range(self._random.randrange(4))
        ]
        document: dict[str, Any] = {"signature_name": self._random.choice(LABELLED), "examples": examples}
        if self._chance(0.2):
            document["context"] = {"x": feature()}
        method = self._random.choice(("classify", "regress"))
        return f"/v1/models/regress_classify:{method}", self._text(document)

    def _call(self) -> tuple[str, bytes]:
        model = self._random.choice(("echo", "echo", *MODELS))
        kind = self._random.choice(RESHAPED if model == "reshaping" else (*RESHAPED, *KINDS))
        signature = OF_JSON.get(kind, kind) if model in MODELS[:2] else ""
        request = protos.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = model, signature
        given = self._fill(request.inputs["x"], kind)
        if model == "reshaping":
            shape = request.inputs["shape"]
            shape.dtype = DataType.DT_INT32  # type: ignore[assignment]
            sizes = self._named(given)
            shape.tensor_shape.dim.add(size=len(sizes))
            shape.int_val.extend(size if abs(size) < 2**31 else -1 for size in sizes)
        if self._chance(0.05):
            request.output_filter.extend(self._random.choices(("y", "", "z"), k=2))
        return f"/{PREDICTION}/Predict", bytes(request.SerializeToString())

    def _fill(self, tensor: protos.TensorProto, kind: str) -> list[int]:
        """A tensor of this type: with its list, another one, or its memory, of some length; its shape."""
        tensor.dtype = DataType[f"DT_{kind.upper()}"].value  # type: ignore[assignment]
        sizes = self._shape()
        sizes = self._named(sizes) if self._chance(0.2) else sizes
        tensor.tensor_shape.SetInParent()
        for size in sizes:
            tensor.tensor_shape.dim.add(size=size)
        tensor.tensor_shape.unknown_rank = self._chance(0.02)
        count = max(0, min(prod(sizes) + self._random.choice((0, 0, 0, -1, 1, -5)), MOST_ELEMENTS))
        if self._chance(0.3):
            width = self._random.choice((1, 1, 2, 4, 8, 16))
            tensor.tensor_content = self._random.randbytes(width * count)
            return sizes
        likely = f"{kind}_val" if f"{kind}_val" in LISTS else "int_val"
        name = likely if self._chance(0.9) else self._random.choice(LISTS)
        if name == "string_val":
            tensor.string_val.extend(self._random.choices((b"", b"a", b"\xff\0", b"word" * 50), k=count))
        elif name == "float8_val":
            tensor.float8_val = self._random.randbytes(count)
        else:
            values = (0, 1, 127) if name in WHOLE else (0, 1)
            getattr(tensor, name).extend(self._random.choices(values, k=count))
        return sizes

    def _examples(self) -> tuple[str, bytes]:
        method = self._random.choice(tuple(EXAMPLES))
        request = EXAMPLES[method]()
        specs = [request.model_spec] if method != "MultiInference" else []
        for _ in range(0 if specs else self._random.randrange(3)):
            task = request.tasks.add()
            task.method_name = self._random.choice((CLASSIFY_METHOD, REGRESS_METHOD))
            specs.append(task.model_spec)
        for spec in specs:
            spec.name = "regress_classify"
            spec.signature_name = self._random.choice(LABELLED)
        for _ in range(self._random.randrange(4)):
            features = request.input.example_list.examples.add().features
            for name in ("x", "x2")[: self._random.randrange(3)]:
                values = features.feature[name]
                if self._chance(0.8):
                    values.float_list.value.extend([1.0] * self._random.randrange(3))
                else:
                    values.bytes_list.value.append(b"a")
        return f"/{PREDICTION}/{method}", bytes(request.SerializeToString())

    def _broken(self, body: bytes) -> bytes:
        """The same with a few other bytes, or cut short."""
        changed = bytearray(body)
        for _ in range(self._random.randrange(1, 4)):
            if changed:
                changed[self._random.randrange(len(changed))] = self._random.randrange(256)
        return bytes(changed[: self._random.randrange(len(changed) + 1)] if self._chance(0.3) else changed)


class Clients:
    """Some threads that send the requests of one generator, and count answers by status or code."""

    def __init__(self, server: EmbeddedServer, requests: Iterator[tuple[str, bytes]], kept: Path) -> None:
        self._server, self._requests, self._kept = server, requests, kept
        self._lock = threading.Lock()
        self.answers: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def run(self) -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            for sending in [pool.submit(self._send) for _ in range(THREADS)]:
                sending.result()

    def _send(self) -> None:
        link = http.client.HTTPConnection(LOOPBACK, self._server.rest_port, timeout=SECONDS)
        with grpc.insecure_channel(self._server.grpc, ANY_SIZE) as channel, contextlib.closing(link):
            while request := self._next():
                answer, words = _posted(link, *request) if ":" in request[0] else _called(channel, *request)
                with self._lock:
                    self.answers[answer] += 1
                if answer in FAULTS:
                    self._keep(request, answer, words)
                if self._server.how_it_ended():
                    return

    def _next(self) -> tuple[str, bytes] | None:
        with self._lock:
            return next(self._requests, None)

    def _keep(self, request: tuple[str, bytes], answer: str, words: str) -> None:
        kind = f"{answer}: {words[:SHOWN_CHARACTERS]}"
        with self._lock:
            self.faults[kind] += 1
            number = len(self.faults)
        if self.faults[kind] == 1:
            self._kept.mkdir(parents=True, exist_ok=True)
            head = f"{request[0]}\n{kind}\n".encode()
            (self._kept / f"tensor-{number}.txt").write_bytes(head + request[1])


def _posted(link: http.client.HTTPConnection, path: str, body: bytes) -> tuple[str, str]:
    try:
        link.request("POST", path, body)
        reply = link.getresponse()
        return str(reply.status), reply.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        link.close()
        return "cut", repr(error)


def _called(channel: grpc.Channel, method: str, message: bytes) -> tuple[str, str]:
    try:
        channel.unary_unary(method)(message, timeout=SECONDS)
    except grpc.RpcError as error:
        return str(error.code().name), str(error.details())
    return "OK", ""


def attack(folder: Path, count: int, seed: int = 1) -> list[Finding]:
    """One line for a server without batching and one for one with it: half of the requests each."""
    return [_against(folder, flags, count // 2, seed + place) for place, flags in enumerate(FLAGS)]


def _against(folder: Path, flags: tuple[str, ...], count: int, seed: int) -> Finding:
    with serving_all(folder, saved_models(), *flags, names=MODELS) as server:
        clients, began = (
            Clients(server, islice(Generator(seed).requests(), count), FAULTS_FOLDER),
            time.monotonic(),
        )
        clients.run()
        end, seconds = server.how_it_ended(), time.monotonic() - began
    note = f"{seconds:.0f} s; {dict(clients.answers.most_common())}; {end or 'it lives'}" + "".join(
        f"; {times} times {kind}" for kind, times in clients.faults.most_common()
    )
    held = 0 if end else count - clients.faults.total()
    return Finding("odd tensors", " ".join(("embedded", *flags)), count, held, note)
