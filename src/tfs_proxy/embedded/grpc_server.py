"""TF Serving's gRPC API: PredictionService and ModelService in front of engine and inference.

Handlers take and give bytes: predictions are written as wire format around the arrays' memory.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from tfs_proxy.embedded import describe, examples, model_config
from tfs_proxy.embedded.engine import Engine
from tfs_proxy.embedded.errors import Code, ServingError, invalid
from tfs_proxy.embedded.inference import check_inputs, chosen_outputs, outputs_of, signature_of
from tfs_proxy.embedded.servable import DEFAULT_SIGNATURE, Array, Servable, Signature
from tfs_proxy.errors import SettingsError
from tfs_proxy.protos import (
    ClassificationRequest,
    ClassificationResponse,
    GetModelMetadataRequest,
    GetModelStatusRequest,
    ModelSpec,
    MultiInferenceRequest,
    PredictRequest,
    RegressionRequest,
    RegressionResponse,
    ReloadConfigRequest,
    ReloadConfigResponse,
)
from tfs_proxy.protos.predict import response_bytes
from tfs_proxy.protos.tensors import to_array
from tfs_proxy.signature import CLASSIFY_METHOD, REGRESS_METHOD

log = logging.getLogger(__name__)

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"

Handler = Callable[[bytes, Any], bytes]

_MAX_MESSAGE = 2**31 - 1
_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Services:
    """The methods of both services, each from a serialized request to a serialized answer."""

    def __init__(self, engine: Engine, *, as_content: bool = False, check_method: bool = False) -> None:
        self._engine = engine
        self._check_method = check_method
        self._as_list = not as_content

    def handlers(self) -> Mapping[str, Mapping[str, Handler]]:
        """Every method by service and name."""
        return {
            PREDICTION_SERVICE: {
                "Predict": self.predict,
                "Classify": self.classify,
                "Regress": self.regress,
                "MultiInference": self.multi_inference,
                "GetModelMetadata": self.get_model_metadata,
            },
            MODEL_SERVICE: {
                "GetModelStatus": self.get_model_status,
                "HandleReloadConfigRequest": self.reload_config,
            },
        }

    def predict(self, message: bytes, _context: Any) -> bytes:
        """PredictionService.Predict."""
        request = PredictRequest.FromString(message)
        with self._using(request.model_spec) as servable:
            signature = signature_of(servable, request.model_spec.signature_name)
            check_inputs(signature, request.inputs.keys())
            arrays = _arrays(signature, request)
            aliases = chosen_outputs(signature, request.output_filter)
            outputs = outputs_of(servable.runner(signature, aliases), aliases, arrays)
            spec = describe.spec_of(servable, signature.name).SerializeToString()
        return response_bytes(spec, outputs, as_list=self._as_list)

    def classify(self, message: bytes, _context: Any) -> bytes:
        """PredictionService.Classify."""
        request = ClassificationRequest.FromString(message)
        with self._using(request.model_spec) as servable:
            plan, array, outputs = self._run_examples(servable, request, CLASSIFY_METHOD)
            answer = ClassificationResponse(model_spec=_answered(servable, request.model_spec))
            answer.result.CopyFrom(examples.classification(plan, outputs, len(array)))
        return answer.SerializeToString()

    def regress(self, message: bytes, _context: Any) -> bytes:
        """PredictionService.Regress."""
        request = RegressionRequest.FromString(message)
        with self._using(request.model_spec) as servable:
            plan, array, outputs = self._run_examples(servable, request, REGRESS_METHOD)
            answer = RegressionResponse(model_spec=_answered(servable, request.model_spec))
            answer.result.CopyFrom(examples.regression(plan, outputs, len(array)))
        return answer.SerializeToString()

    def multi_inference(self, message: bytes, _context: Any) -> bytes:
        """PredictionService.MultiInference."""
        request = MultiInferenceRequest.FromString(message)
        spec = request.tasks[0].model_spec if request.tasks else ModelSpec()
        with self._using(spec) as servable:
            answer = examples.multi_inference(servable, request, check_method=self._check_method)
        return answer.SerializeToString()

    def _run_examples(
        self, servable: Servable, request: ClassificationRequest | RegressionRequest, method: str
    ) -> tuple[examples.Plan, Array, examples.Named]:
        name = request.model_spec.signature_name
        signature = examples.signature_for(servable, name, method, check_method=self._check_method)
        plan = examples.plan_for(signature, method)
        array = examples.serialized(request.input)
        return plan, array, examples.run(examples.runner_for(servable, plan), plan, array)

    def get_model_metadata(self, message: bytes, _context: Any) -> bytes:
        """PredictionService.GetModelMetadata."""
        request = GetModelMetadataRequest.FromString(message)
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != describe.SIGNATURE_DEF:
                raise invalid(f"Metadata field {field} is not supported")
        with self._using(request.model_spec) as servable:
            return describe.metadata(servable).SerializeToString()

    def get_model_status(self, message: bytes, _context: Any) -> bytes:
        """ModelService.GetModelStatus."""
        request = GetModelStatusRequest.FromString(message)
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        return describe.status(self._engine, *_target(request.model_spec)).SerializeToString()

    def reload_config(self, message: bytes, context: Any) -> bytes:
        """ModelService.HandleReloadConfigRequest: returns once every new model is loaded, or failed."""
        request = ReloadConfigRequest.FromString(message)
        answer = ReloadConfigResponse()
        answer.status.SetInParent()
        try:
            if request.config.WhichOneof("config") is None:
                raise invalid("ServerConfig in request does not contain model_config_list")
            self._reload(request, context)
        except ServingError as error:
            answer.status.error_code = int(error.code)  # type: ignore[assignment]
            answer.status.error_message = error.text
        return answer.SerializeToString()

    def _reload(self, request: ReloadConfigRequest, context: Any) -> None:
        before = set(self._engine.model_names)
        sources = model_config.from_message(request.config)
        self._engine.reload(sources)
        new = [source.name for source in sources if source.name not in before]
        self._engine.wait_until_available(new, context.is_active)

    def _using(self, spec: ModelSpec) -> AbstractContextManager[Servable]:
        return self._engine.using(*_target(spec))


def _answered(servable: Servable, spec: ModelSpec) -> ModelSpec:
    return describe.spec_of(servable, spec.signature_name or DEFAULT_SIGNATURE)


def _target(spec: ModelSpec) -> tuple[str, int | None, str | None]:
    choice = spec.WhichOneof("version_choice")
    version = spec.version.value if choice == "version" else None
    return spec.name, version, spec.version_label if choice == "version_label" else None


def _arrays(signature: Signature, request: PredictRequest) -> dict[str, Array]:
    """The signature's inputs as arrays, defaults where the request has none."""
    arrays = {}
    for alias in signature.inputs:
        tensor = request.inputs[alias] if alias in request.inputs else signature.message.defaults[alias]
        try:
            arrays[alias] = to_array(tensor)
        except ValueError as error:
            raise invalid(f"tensor parsing error: {alias}") from error
    return arrays


def start(
    handlers: Mapping[str, Mapping[str, Handler]],
    *,
    addresses: Iterable[str],
    threads: int,
    options: Iterable[tuple[str, int | str]] = (),
    credentials: Any = None,
) -> Any:
    """A running `grpc.Server` on these addresses; any message size is taken.

    Raises SettingsError where an address can't be bound.
    """
    server = grpc.server(
        ThreadPoolExecutor(threads, thread_name_prefix="grpc"),
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
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, table),))
    for address in addresses:
        _bind(server, address, credentials)
    server.start()
    return server


def _bind(server: Any, address: str, credentials: Any) -> None:
    secure = credentials is not None and not address.startswith("unix:")
    try:
        port = server.add_secure_port(address, credentials) if secure else server.add_insecure_port(address)
    except RuntimeError as error:
        raise SettingsError(f"Can't listen for gRPC on {address}: {error}") from error
    if not port:
        raise SettingsError(f"Can't listen for gRPC on {address}.")


def _guarded(name: str, run: Handler) -> Handler:
    def handle(message: bytes, context: Any) -> bytes:
        try:
            return run(message, context)
        except ServingError as error:
            context.abort(_STATUS_CODES[int(error.code)], error.text)
        except DecodeError:
            context.abort(grpc.StatusCode.INTERNAL, f"The request is no message of {name}")
        except Exception:
            log.exception("%s failed", name)
            context.abort(_STATUS_CODES[int(Code.INTERNAL)], "Internal error: see the model server's log")
        raise AssertionError(name)

    return handle
