"""TF Serving's gRPC API: PredictionService and ModelService in front of the servable lifecycle and inference.

Handlers take and give bytes: predictions are written as wire format that refers to the arrays' memory.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from tfs_proxy.embedded import model_config
from tfs_proxy.embedded.core import predict as prediction_service
from tfs_proxy.embedded.core.catalog import SIGNATURE_DEF, Catalog, metadata, status
from tfs_proxy.embedded.core.examples import multi_inference
from tfs_proxy.embedded.core.metrics import Metrics
from tfs_proxy.embedded.core.process_ledger import ProcessLedger, RequestLedger, budget_of
from tfs_proxy.embedded.core.servable import CALLER_WAITS, LoadedServable
from tfs_proxy.embedded.errors import ServingError, invalid, of_memory
from tfs_proxy.embedded.lifecycle import ServableLifecycle
from tfs_proxy.values.errors import Overloaded, PayloadTooLarge
from tfs_proxy.values.memory import RESERVED_FROM_BYTES, MemoryBudget
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.protos import (
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
from tfs_proxy.wire.protos.sizes import parsed_bytes

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"

Inference = Callable[[LoadedServable, Any, MemoryBudget], bytes | Message]


class CallContext(Protocol):
    """Questions that a method may ask about its call; from any thread."""

    def peer(self) -> str:
        """The client's address as gRPC writes it: ``unix:``, or ``ipv4:`` with address and port."""

    def is_active(self) -> bool:
        """True if the caller still waits."""


Handler = Callable[[bytes, CallContext], bytes]

Handlers = Mapping[str, Mapping[str, Handler]]
"""Methods by service and name."""

_Request = TypeVar("_Request", bound=Message)

_COPIES = 3
"""A message stands in memory as bytes, as the texts of its fields, and as arrays."""


class Services:
    """The methods of both services, each from a serialized request to a serialized answer."""

    def __init__(
        self,
        catalog: Catalog,
        lifecycle: ServableLifecycle,
        metrics: Metrics,
        ledger: ProcessLedger,
    ) -> None:
        self._catalog = catalog
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._ledger = ledger

    def handlers(self) -> Handlers:
        return {
            PREDICTION_SERVICE: {
                "Predict": self._inference("Predict", PredictRequest, prediction_service.predict),
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

        def handle(message: bytes, context: CallContext) -> bytes:
            with self._budget(context) as budget:
                request = _parsed(request_type, message, budget)
                with self._counted(_inference_spec(request), api) as servable:
                    answer = run(servable, request, budget)
                return answer if isinstance(answer, bytes) else answer.SerializeToString()

        return handle

    @contextmanager
    def _budget(self, context: CallContext) -> Iterator[MemoryBudget]:
        """Memory that a message and what is made of it may take together, while a caller waits for it."""
        ledger = RequestLedger(self._ledger)
        waits = CALLER_WAITS.set(context.is_active)
        try:
            yield budget_of(ledger)
        finally:
            ledger.close()
            CALLER_WAITS.reset(waits)  # else each call stays open, of which a connection may have so many

    def get_model_metadata(self, message: bytes, _context: CallContext) -> bytes:
        request = _parsed(GetModelMetadataRequest, message, budget_of())
        spec = _spec_of(request)
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != SIGNATURE_DEF:
                raise invalid(f"Metadata field {field} is not supported")
        with self._catalog.using(*_target(spec)) as servable:
            return metadata(servable).SerializeToString()

    def get_model_status(self, message: bytes, _context: CallContext) -> bytes:
        request = _parsed(GetModelStatusRequest, message, budget_of())
        name, version, _ = _target(_spec_of(request))
        return status(self._catalog, name, version).SerializeToString()

    def reload_config(self, message: bytes, context: CallContext) -> bytes:
        """ModelService.HandleReloadConfigRequest: answers once every new model is loaded.

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
        sources = model_config.from_message(request.config, default_platform="")
        answer = ReloadConfigResponse()
        answer.status.SetInParent()
        with self._lifecycle.turn(context.is_active):
            before = self._catalog.names
            self._lifecycle.reload(sources)
            new = [source.name for source in sources if source.name not in before]
            self._lifecycle.wait_until_available(new, context.is_active)
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
            self._count(spec.name, api, code, began)

    def _count(self, model: str, api: str, code: GrpcCode, began: float) -> None:
        if model in self._catalog.names:
            self._metrics.request(model, api, "GRPC", code, (perf_counter() - began) * 1e6)


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
