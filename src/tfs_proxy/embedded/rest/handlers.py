"""One POST of the REST API between its body and its answer: predict, classify and regress.

Reading and running are two steps, so that the application can choose which thread runs the second one.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from tfs_proxy.data.serving_json import answer_text
from tfs_proxy.data.serving_json.answer_text import NoRows, NoText
from tfs_proxy.embedded.core.catalog import Catalog
from tfs_proxy.embedded.core.examples import ExampleRun
from tfs_proxy.embedded.core.predict import check_method, outputs_of, with_defaults
from tfs_proxy.embedded.core.servable import (
    DEFAULT_SIGNATURE,
    Array,
    LoadedServable,
    Runner,
    ServableSignature,
    Tensor,
    type_name,
)
from tfs_proxy.embedded.errors import invalid
from tfs_proxy.embedded.rest.bodies import PredictCall, decode_examples, decode_predict
from tfs_proxy.embedded.rest.requests import Route
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import CLASSIFY_METHOD, REGRESS_METHOD


class Handler(ABC):
    """One request; it holds its servable from `read` to `close`."""

    def __init__(self, catalog: Catalog, route: Route) -> None:
        self._catalog = catalog
        self._route = route
        self._servable: LoadedServable | None = None
        self._runner: Runner | None = None

    @property
    def quick(self) -> bool:
        """True if the second step may run on the event loop's thread, where it holds up everything else."""
        return self._runner is not None and self._runner.quick

    @abstractmethod
    def read(self, body: bytes, budget: MemoryBudget) -> None:
        """The first step: understand the body. Raises ServingError, and what the budget does."""

    @abstractmethod
    def answer(self) -> bytes:
        """The second step: run it and write the answer. Raises ServingError."""

    def close(self) -> None:
        """Give the servable back."""
        if self._servable is not None:
            self._servable.leave()

    def _acquire(self) -> LoadedServable:
        if self._servable is None:
            self._servable = self._catalog.acquire(self._route.model, self._route.version, self._route.label)
        return self._servable


class Predict(Handler):
    """``POST …:predict``."""

    _signature: ServableSignature
    _call: PredictCall
    _arrays: Mapping[str, Array]

    def read(self, body: bytes, budget: MemoryBudget) -> None:
        """Decode the body against the signature that it names. Raises ServingError."""
        self._call = decode_predict(body, self._inputs, budget)
        check_method(self._signature)
        self._arrays = with_defaults(self._signature, self._call.arrays)
        self._runner = self._acquire().runner(self._signature, self._signature.aliases)

    def _inputs(self, name: str) -> Mapping[str, Tensor]:
        signature = self._acquire().signatures.get(name or DEFAULT_SIGNATURE)
        if signature is None:
            raise invalid(f'Serving signature name: "{name or DEFAULT_SIGNATURE}" not found in signature def')
        self._signature = signature
        return signature.inputs

    def answer(self) -> bytes:
        """Rows or columns. Raises ServingError."""
        assert self._runner is not None  # noqa: S101 (read comes first)
        outputs = outputs_of(self._runner, self._signature.aliases, self._arrays)
        if not outputs:
            raise invalid("Cannot convert empty tensor map to JSON")
        try:
            return answer_text.rows(outputs) if self._call.by_row else answer_text.columns(outputs)
        except NoRows as error:
            raise invalid(str(error)) from error
        except NoText as error:
            kind = type_name(error.data_type)
            raise invalid(f"Failed to write JSON value for tensor type: {kind}") from error


class ExampleHandler(Handler):
    """``POST …:classify`` and ``…:regress``: both read examples."""

    method: str
    _run: ExampleRun

    def read(self, body: bytes, budget: MemoryBudget) -> None:
        """Decode the examples, then look at the signature. Raises ServingError."""
        call = decode_examples(body, budget)
        self._run = ExampleRun(self._acquire(), call.signature, self.method, call.examples, budget)
        self._runner = self._run.runner


class Classify(ExampleHandler):
    """``POST …:classify``."""

    method = CLASSIFY_METHOD

    def answer(self) -> bytes:
        """Labels with scores. Raises ServingError."""
        return answer_text.classes(self._run.classes())


class Regress(ExampleHandler):
    """``POST …:regress``."""

    method = REGRESS_METHOD

    def answer(self) -> bytes:
        """One number per example. Raises ServingError."""
        return answer_text.regressions([line.value for line in self._run.regression().regressions])


HANDLERS: Mapping[str, type[Handler]] = {"predict": Predict, "classify": Classify, "regress": Regress}
"""The handler of each method of the REST API."""
