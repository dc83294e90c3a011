"""Seeded requests with odd tensors against the embedded server as a child: shapes, types, nesting and contents.

Each has to be answered in words, over REST and gRPC, with batching and without; no request may end the process.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from math import prod
from pathlib import Path
from random import Random
from typing import Any

from attack.amplification import FAULTS, throw
from attack.findings import Finding
from support.grpc_calls import PREDICT
from support.model_fixtures import BUILDER, built_by, serving_all
from tfs_proxy.wire.data_types import DataType
from tfs_proxy.wire.protos import PredictRequest, TensorProto

CLIENTS = 4
MOST_ELEMENTS = 40
RANKS = (0, *(1, 2, 3) * 4, 8, 31, 32, 33, 34, 62, 63, 64, 65, 253, 254, 255, 300)
SIZES = (0, 1, 1, 1, 1, 2, 2, 3, 5, 17)
ODD_SIZES = (-1, -(2**63), 2**31, 2**62, 2**63 - 1, 60_000)
KINDS = {kind.name.removeprefix("DT_").lower(): kind.value for kind in DataType if kind}
SIGNATURES = {"half": "float16", "float": "float32", "double": "float64"}
LEAVES = json.loads(
    """[0, -1, 255, 256, 4294967296, 18446744073709551616, 0.5, 1e39, NaN, Infinity, true, null, "", "a", "\\u0000",
    "\\ud800", {"b64": "YQ=="}, {"b64": "?"}, {}, []]"""
)
NUMBERS = "half float double int scomplex int64 bool dcomplex uint32 uint64".split()


def requests(random: Random) -> Iterator[tuple[str, bytes]]:
    """Targets and bodies of REST and of gRPC, without end; a few bodies have another byte."""
    while True:
        model = random.choice(("echo", "reshaping"))
        kind = random.choice(tuple(KINDS) if model == "echo" else ("string", "float", "int64"))
        sizes = shape(random)
        named = random.sample(sizes, len(sizes)) + [1] * (random.choice(RANKS) - len(sizes))
        if random.random() < 0.2:
            named = [random.choice((size, *ODD_SIZES)) for size in named]
        more = {"shape": named} if model == "reshaping" else {}
        if random.random() < 0.5:
            target, body = f"v1/models/{model}:predict", text(random, kind, sizes, more)
        else:
            target, body = PREDICT, message(random, model, kind, sizes, more)
        at = random.randrange(20 * len(body))
        yield target, body[:at] + random.randbytes(at < len(body)) + body[at + 1 :]


def shape(random: Random) -> list[int]:
    sizes: list[int] = []
    for _ in range(random.choice(RANKS)):
        size = random.choice(SIZES)
        sizes.append(size if prod(filter(None, sizes)) * size <= MOST_ELEMENTS else 1)
    return sizes


def text(random: Random, kind: str, sizes: Sequence[int], more: Mapping[str, Any]) -> bytes:
    plain = {"string": "a", "bool": True}.get(kind, 1)

    def nested(level: int) -> Any:
        if level == len(sizes) or random.random() < 0.002:
            return plain if random.random() < 0.98 else random.choice(LEAVES)
        return [nested(level + 1) for _ in range(sizes[level])]

    inputs = {"x": nested(0), **more}
    form = random.choice(({"inputs": inputs}, {"instances": [inputs]}, {"instances": inputs["x"]}))
    return json.dumps({"signature_name": SIGNATURES.get(kind, kind), **form}).encode()


def message(random: Random, model: str, kind: str, sizes: Sequence[int], more: Mapping[str, Any]) -> bytes:
    """Its tensor has all lists, or memory, for about as many elements as its shape has."""
    count = max(0, prod(sizes) + random.choice((0, 0, 0, 0, 1, -1)))
    contents: dict[str, Any] = {f"{name}_val": [1] * count for name in NUMBERS}
    contents |= {
        "string_val": random.choices((b"", b"a", b"\xff" * 300), k=count),
        "float8_val": b"1" * count,
    }
    if random.random() < 0.3:
        contents = {"tensor_content": random.randbytes(count * random.choice((1, 2, 4, 8)))}
    inputs = {"x": tensor(KINDS[kind], random.choice((sizes, sizes, more.get("shape", sizes))), **contents)}
    for name, named in more.items():
        whole = [size if abs(size) < 2**31 else -1 for size in named]
        inputs[name] = tensor(DataType.DT_INT32, [len(named)], int_val=whole)
    spec = {"name": model, "signature_name": SIGNATURES.get(kind, kind)}
    return bytes(PredictRequest(model_spec=spec, inputs=inputs).SerializeToString())


def tensor(kind: Any, sizes: Sequence[int], **contents: Any) -> TensorProto:
    return TensorProto(dtype=kind, tensor_shape={"dim": [{"size": size} for size in sizes]}, **contents)


def attack(folder: Path, count: int) -> Iterator[Finding]:
    """One line without batching and one with it, of so many requests each."""
    for flag in ("--enable_batching=false", "--enable_batching"):
        sent = islice(requests(Random(1)), count)
        with serving_all(folder, built_by(BUILDER, "models"), flag, names=("echo", "reshaping")) as server:
            with ThreadPoolExecutor(CLIENTS) as pool:
                answers = Counter(pool.map(lambda each: throw(server, *each), sent))
            end = server.how_it_ended() or ""
        held = count - sum(answers[fault] for fault in {*FAULTS, "UNAVAILABLE"})
        yield Finding("odd tensors", flag, count, 0 if end else held, f"{end} {dict(answers)}")
