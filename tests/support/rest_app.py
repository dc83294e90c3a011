"""The embedded server's REST application in front of models that are made up, without TensorFlow."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from support.running import Answer
from tfs_proxy.embedded.core.catalog import Catalog, Model
from tfs_proxy.embedded.core.metrics import Metrics
from tfs_proxy.embedded.core.process_ledger import ProcessLedger
from tfs_proxy.embedded.core.servable import Array, Backend, LoadedServable, PreparedCall
from tfs_proxy.embedded.rest.app import RestApp, RestOptions
from tfs_proxy.values.signature import PREDICT_METHOD
from tfs_proxy.wire.data_types import DataType
from tfs_proxy.wire.protos import SignatureDef, TensorInfo, TensorProto

FLOAT = 1


class Passed:
    """A backend that gives its last input back, after a while."""

    def __init__(self, seconds: float = 0.0, *, waits: bool = False) -> None:
        self.seconds = seconds
        self.waits, self.at_once = waits, 2

    def prepare(self, feeds: Sequence[str], fetches: Sequence[str]) -> PreparedCall:
        return lambda arrays: self.answer(dict(zip(feeds, arrays, strict=True)), fetches)

    def answer(self, given: Mapping[str, Array], fetches: Sequence[str]) -> Sequence[Array]:
        """What one call gives for its arrays by name, a subclass's own."""
        time.sleep(self.seconds)
        return [[*given.values()][-1] for _ in fetches]

    def close(self) -> None:
        pass


def signature(method_name: str = "own", **inputs: int) -> SignatureDef:
    """From these inputs to one output of the last one's type."""
    made = SignatureDef(method_name=method_name)
    for alias, data_type in inputs.items():
        made.inputs[alias].CopyFrom(TensorInfo(name=f"{alias}:0", dtype=data_type))  # type: ignore[arg-type]
    made.outputs["y"].CopyFrom(TensorInfo(name="y:0", dtype=data_type))  # type: ignore[arg-type]
    return made


class RestAppOnAModel:
    """The application over one model, `m`, that is there."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        seconds: float = 0.0,
        backend: Backend | None = None,
        *,
        check_methods: bool = False,
        ledger: ProcessLedger | None = None,
        **options: Any,
    ) -> None:
        self.metrics = Metrics()
        self.ledger = ledger or ProcessLedger()
        catalog = Catalog()
        defaulted = signature(a=DataType.DT_STRING, b=DataType.DT_STRING)
        for alias in "ab":
            defaulted.defaults[alias].MergeFrom(TensorProto(dtype="DT_STRING", string_val=[b"d"]))
        signatures = {
            "serving_default": signature(x=FLOAT),
            "pair": signature(a=DataType.DT_STRING, b=DataType.DT_STRING),
            "defaulted": defaulted,
            "named": signature(x=FLOAT, method_name=PREDICT_METHOD),
        }
        catalog.models["m"] = Model()
        self.servable = LoadedServable(
            "m", 1, signatures, backend or Passed(seconds), self.metrics, check_methods=check_methods
        )
        catalog.models["m"].publish({1: self.servable})
        catalog.names = frozenset({"m"})
        catalog.starting = False
        self.app = RestApp(catalog, pool, self.metrics, self.ledger, RestOptions(**options))

    def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
        """One request; header names have underscores for dashes."""
        return asyncio.run(self.answer(method, target, body, **headers))

    async def answer(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
        path, _, query = target.partition("?")
        scope = {
            "method": method,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        }
        sent: list[dict[str, Any]] = []

        arriving: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        arriving.put_nowait({"type": "http.request", "body": body, "more_body": False})

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, arriving.get, send)
        start, rest = sent
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], found, rest["body"])

    def predict(self, body: bytes, **headers: str) -> Answer:
        return self.ask("POST", "/v1/models/m:predict", body, **headers)
