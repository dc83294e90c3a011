"""TF Serving's gRPC API: PredictionService and ModelService in front of the servable lifecycle and inference.

Handlers take and give bytes: predictions are written as wire format around the arrays' memory.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from tfs_proxy.embedded import model_config
from tfs_proxy.embedded.core import describe, prediction_service
from tfs_proxy.embedded.core.call_threads import aside
from tfs_proxy.embedded.core.catalog import Catalog
from tfs_proxy.embedded.core.examples import multi_inference
from tfs_proxy.embedded.core.metrics import Metrics
from tfs_proxy.embedded.core.process_ledger import ProcessLedger, RequestLedger, budget_of
from tfs_proxy.embedded.core.servable import LoadedServable
from tfs_proxy.embedded.errors import ServingError, invalid, of_memory
from tfs_proxy.embedded.lifecycle.servable_lifecycle import ServableLifecycle
from tfs_proxy.errors import Overloaded, PayloadTooLarge, SettingsError
from tfs_proxy.memory import RESERVED_FROM_BYTES, MemoryBudget
from tfs_proxy.protos import (
    ClassificationRequest,
    GetModelMetadataRequest,
    GetModelStatusRequest,
    ModelSpec,
    MultiInferenceRequest,
    PredictRequest,
    RegressionRequest,
    ReloadConfigRequest,
    ReloadConfigResponse,
)
from tfs_proxy.protos.sizes import parsed_bytes
from tfs_proxy.wire.grpc_codes import GrpcCode

log = logging.getLogger(__name__)

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"

Inference = Callable[[LoadedServable, Any, MemoryBudget], bytes | Message]
Handler = Callable[[bytes, Any], bytes]
Stream = Callable[[bytes, Any, Callable[[bytes | None], None]], None]
"""A method that answers with a stream: it returns at once, and sends message by message, None at the end."""

_Request = TypeVar("_Request", bound=Message)

_MAX_MESSAGE = 2**31 - 1
_COPIES = 3
"""A message stands in memory as bytes, as the texts of its fields, and as arrays."""
_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Services:
    """The methods of both services, each from a serialized request to a serialized answer."""

    def __init__(
        self,
        catalog: Catalog,
        lifecycle: ServableLifecycle,
        metrics: Metrics,
        ledger: ProcessLedger,
        *,
        as_content: bool = False,
    ) -> None:
        self._catalog = catalog
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._ledger = ledger
        self._as_list = not as_content

    def handlers(self) -> Mapping[str, Mapping[str, Handler]]:
        """Every method by service and name."""
        return {
            PREDICTION_SERVICE: {
                "Predict": self._inference(
                    "Predict", PredictRequest, partial(prediction_service.predict, as_list=self._as_list)
                ),
                "Classify": self._inference("Classify", ClassificationRequest, prediction_service.classify),
                "Regress": self._inference("Regress", RegressionRequest, prediction_service.regress),
                "MultiInference": self._inference("MultiInference", MultiInferenceRequest, multi_inference),
                "GetModelMetadata": self.get_model_metadata,
            },
            MODEL_SERVICE: {
                "GetModelStatus": self.get_model_status,
                "HandleReloadConfigRequest": self.reload_config,
            },
        }

    def _inference(self, api: str, request_type: type[Message], run: Inference) -> Handler:
        """A method of PredictionService that runs a servable on a message of this type."""

        def handle(message: bytes, _context: Any) -> bytes:
            with self._budget() as budget:
                request = _parsed(request_type, message, budget)
                with self._counted(_inference_spec(request), api) as servable:
                    answer = run(servable, request, budget)
                return answer if isinstance(answer, bytes) else answer.SerializeToString()

        return handle

    @contextmanager
    def _budget(self) -> Iterator[MemoryBudget]:
        """What a message may become, together with others."""
        ledger = RequestLedger(self._ledger)
        try:
            yield budget_of(ledger)
        finally:
            ledger.close()

    def get_model_metadata(self, message: bytes, _context: Any) -> bytes:
        """PredictionService.GetModelMetadata."""
        request = _parsed(GetModelMetadataRequest, message, budget_of())
        spec = _spec_of(request)
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != describe.SIGNATURE_DEF:
                raise invalid(f"Metadata field {field} is not supported")
        with self._catalog.using(*_target(spec)) as servable:
            return describe.metadata(servable).SerializeToString()

    def get_model_status(self, message: bytes, _context: Any) -> bytes:
        """ModelService.GetModelStatus."""
        request = _parsed(GetModelStatusRequest, message, budget_of())
        name, version, _ = _target(_spec_of(request))
        return describe.status(self._catalog, name, version).SerializeToString()

    def reload_config(self, message: bytes, context: Any) -> bytes:
        """ModelService.HandleReloadConfigRequest: answers once every new model is loaded.

        The answer says by how much the requested counters have grown meanwhile.
        One that comes before the models of the start are loaded waits for them, as for the official
        server's port, and one that comes while another waits for its models for that one. Raises
        ServingError if the config can't be taken, or a new model failed.
        """
        request = _parsed(ReloadConfigRequest, message, budget_of())
        if request.config.WhichOneof("config") != "model_config_list":
            raise invalid(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. "
                "Only ModelConfigList is currently supported"
            )
        # NOTE: here, unlike in a file, TF Serving refuses a model without a platform.
        sources = model_config.from_message(request.config, self._catalog.names, default_platform="")
        answer = ReloadConfigResponse()
        answer.status.SetInParent()
        with aside(), self._lifecycle.turn(context.is_active):
            counted = {name: self._metrics.count_of(name) for name in request.metric_names}
            before = self._catalog.names
            self._lifecycle.reload(sources)
            new = [source.name for source in sources if source.name not in before]
            self._lifecycle.wait_until_available(new, context.is_active)
            for name, count in counted.items():
                answer.metric.add(name=name, int64_value_increase=self._metrics.count_of(name) - count)
        return answer.SerializeToString()

    @contextmanager
    def _counted(self, spec: ModelSpec, api: str) -> Iterator[LoadedServable]:
        began = perf_counter()
        code = GrpcCode.INTERNAL
        try:
            with self._catalog.using(*_target(spec)) as servable:
                yield servable
            code = GrpcCode.OK
        except ServingError as error:
            code = error.code
            raise
        except (PayloadTooLarge, Overloaded) as error:
            refusal = of_memory(error)
            code = refusal.code
            raise refusal from error
        finally:
            if spec.name in self._catalog.names:
                self._metrics.request(spec.name, api, "GRPC", code, (perf_counter() - began) * 1e6)


def _parsed(request_type: type[_Request], message: bytes, budget: MemoryBudget) -> _Request:
    """The request that a message holds. Raises DecodeError, and what the budget does, before it is parsed."""
    if len(message) >= RESERVED_FROM_BYTES:
        field_bytes = parsed_bytes(request_type, message, budget.limit_bytes)
        budget.require(field_bytes, "The message")
        budget.reserve(_COPIES * len(message) + field_bytes)
    return request_type.FromString(message)


def _inference_spec(request: Any) -> ModelSpec:
    if isinstance(request, MultiInferenceRequest):
        return request.tasks[0].model_spec if request.tasks else ModelSpec()
    return _spec_of(request)


def _spec_of(request: Any) -> ModelSpec:
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec: ModelSpec = request.model_spec
    return spec


def _target(spec: ModelSpec) -> tuple[str, int | None, str | None]:
    choice = spec.WhichOneof("version_choice")
    version = spec.version.value if choice == "version" else None
    return spec.name, version, spec.version_label if choice == "version_label" else None


def start(
    handlers: Mapping[str, Mapping[str, Handler]],
    *,
    streams: Mapping[str, Mapping[str, Stream]] = MappingProxyType({}),
    addresses: Iterable[str],
    threads: Executor,
    options: Iterable[tuple[str, int | str]] = (),
    credentials: Any = None,
) -> Any:
    """A running `grpc.Server` on these addresses; any message size is taken.

    Raises SettingsError if an address can't be bound.
    """
    server = grpc.server(
        threads,
        options=[
            ("grpc.max_send_message_length", _MAX_MESSAGE),
            ("grpc.max_receive_message_length", _MAX_MESSAGE),
            ("grpc.so_reuseport", 0),
            *options,
        ],
    )
    for service, methods in handlers.items():
        table = {
            name: grpc.unary_unary_rpc_method_handler(_guarded(name, run)) for name, run in methods.items()
        }
        for name, stream in streams.get(service, {}).items():
            table[name] = grpc.unary_stream_rpc_method_handler(_streamed(name, stream))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, table),))
    for address in addresses:
        _bind(server, address, credentials)
    server.start()
    return server


def _bind(server: Any, address: str, credentials: Any) -> None:
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise SettingsError(f"Can't listen for gRPC on {address}: {error}") from error
    if not port:
        raise SettingsError(f"Can't listen for gRPC on {address}.")


def _guarded(name: str, run: Handler) -> Handler:
    def handle(message: bytes, context: Any) -> bytes:
        try:
            return run(message, context)
        except Exception as error:  # noqa: BLE001 (_refuse raises)
            _refuse(name, error, context)

    return handle


def _streamed(name: str, run: Stream) -> Stream:
    def handle(message: bytes, context: Any, send: Callable[[bytes | None], None]) -> None:
        try:
            run(message, context, send)
        except Exception as error:  # noqa: BLE001 (_refuse raises)
            _refuse(name, error, context)

    handle.experimental_non_blocking = True  # type: ignore[attr-defined]
    return handle


def _refuse(name: str, error: Exception, context: Any) -> NoReturn:
    """End a call with the status of its error; always raises."""
    if isinstance(error, PayloadTooLarge | Overloaded):
        error = of_memory(error)
    if isinstance(error, ServingError):
        context.abort(_STATUS_CODES[int(error.code)], error.text)
    if isinstance(error, DecodeError):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"The request is not a message of {name}")
    log.error("%s failed", name, exc_info=error)
    context.abort(_STATUS_CODES[int(GrpcCode.INTERNAL)], "Internal error: see the model server's log")
    raise AssertionError(name) from error
