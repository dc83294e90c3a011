"""Scripts that are the model themselves (model_fn, predict_fn), and the context of their functions."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from tfs_proxy.data.registry import (
    ARRAY_TYPES,
    as_text,
    decode_array,
    encode_array,
    negotiate,
    parse_media_type,
)
from tfs_proxy.model.openapi.description import importing
from tfs_proxy.model.script_syntax import PARAMETERS, SCRIPT_MODEL_FUNCTIONS, no_model_fn
from tfs_proxy.observe.request_record import current_id
from tfs_proxy.serving.script.context import RequestContext, ScriptRequest
from tfs_proxy.serving.script.load import LoadedScript, function_of, import_script, own_members, takes
from tfs_proxy.serving.script.runner import ScriptReply, ScriptRunner, script_reply
from tfs_proxy.serving.script.sagemaker_shims import install_shims
from tfs_proxy.serving.script.typed import declared_body, description_of
from tfs_proxy.serving.script.values import FRAMING, Response
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import ScriptLoadError
from tfs_proxy.values.signature import Target
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES
from tfs_proxy.wire.media_types import JSON, preferred

NO_REQUEST = ScriptRequest(Target(""), b"")


class ScriptModelContext(RequestContext):
    """Context of one request; ``model_fn`` and ``health`` get one without a request.

    ``model`` is what ``model_fn`` returned.

    ``system_properties`` and ``get_request_header`` are named as in AWS's toolkits, the rest as in
    the context of a handler; ``request_id`` is that of the log and the answer's ``X-Request-Id``.
    """

    __slots__ = (
        "_form",
        "_reply_attributes",
        "_request",
        "model",
        "request_id",
        "system_properties",
    )

    def __init__(self, model_dir: str, request: ScriptRequest = NO_REQUEST, model: Any = None) -> None:
        self._request = request
        self.model = model
        self._reply_attributes = None
        self._form = None
        self.request_id = current_id()
        self.system_properties: Mapping[str, str | None] = {"model_dir": model_dir, "gpu_id": None}

    @property
    def model_dir(self) -> str:
        """Folder that is served, the argument of ``model_fn``."""
        return self.system_properties["model_dir"] or ""

    def get_request_header(self, _index: int, name: str) -> str | None:
        """Return one header of the request; there is one request, whatever the index."""
        return self.headers.get(name)

    def get_all_request_header(self, _index: int) -> Mapping[str, str]:
        """Return the request's headers; there is one request, whatever the index."""
        return self.headers

    @property
    def request_content_type(self) -> str | None:
        """Content-Type as it was sent, with its parameters."""
        return self._request.content_type

    @property
    def accept_header(self) -> str | None:
        """Accept as it was sent."""
        return self._request.accept

    @property
    def custom_attributes(self) -> str | None:
        """Header ``X-Amzn-SageMaker-Custom-Attributes`` of the request."""
        return self.headers.get(CUSTOM_ATTRIBUTES)

    def default_input(self, data: Any) -> Any:
        """Decode a body to an array, as the default ``input_fn`` does.

        Of the Open Inference Protocol it is a dict of arrays by input name. Raises BadInput (400), and
        UnsupportedMediaType (415).
        """
        if self._request.codec is not None:
            return self._request.codec.arrays(data.encode() if isinstance(data, str) else data)
        return decode_array(data, self._request.content_type, self._request.budget)

    def default_output(self, prediction: Any, accept: str = JSON) -> tuple[bytes, str]:
        """Encode an array, or arrays by output name, as the default ``output_fn`` does: body and type."""
        if self._request.codec is not None:
            return self._request.codec.encode(prediction)
        return encode_array(prediction, accept), accept


MODEL, INPUT, PREDICT, OUTPUT, TRANSFORM = SCRIPT_MODEL_FUNCTIONS
TEXT = frozenset({media.JSON, media.CSV})
"""Types whose bodies reach a script as str; all others are bytes."""

Function = Callable[..., Any]


class ScriptModel(LoadedScript, frozen=True, kw_only=True):
    """Loaded script that is the model itself; each function but ``close`` may take a context last."""

    model_fn: Function
    """Function from the model's folder to the model."""

    input_fn: Function | None = None
    """Function from a body and its type to the model's input; None for the default."""

    predict_fn: Function | None = None
    """Function from that input and the model to the prediction; None for the default."""

    output_fn: Function | None = None
    """Function from the prediction and the accepted type to the answer; None for the default."""

    transform_fn: Function | None = None
    """Function in place of these three; None without one."""

    loaded: Any = ()
    """Result of ``model_fn``, as the one element of a tuple, if it was called before this process was
    forked."""


_LOADED: dict[str, ScriptModel] = {}


def load_model_for_forks(path: str, import_paths: Sequence[str], model_dir: str) -> bool:
    """Load script and model, which `load_script_model` returns from then on, in forked processes too.

    Returns False for an ``async def``. Raises ScriptLoadError, and whatever ``model_fn`` raises.
    """
    script_model = load_script_model(path, import_paths)
    model = script_model.model_fn(model_dir, ScriptModelContext(model_dir))
    _LOADED[path] = replace(script_model, loaded=(model,))
    return not inspect.isawaitable(model)


def load_script_model(path: str, import_paths: Sequence[str] = ()) -> ScriptModel:
    """Import the script at ``path``; modules of AWS's toolkits that it imports are there.

    Raises ScriptLoadError if it can't be imported, has no ``model_fn``, has ``transform_fn`` and functions
    that it replaces, or a function that can't be called with its arguments.
    """
    if path in _LOADED:
        return _LOADED[path]
    install_shims()
    with importing(Path(path)) as described:
        module = import_script(path, import_paths)
    functions = {name: _with_context(module, name) for name in SCRIPT_MODEL_FUNCTIONS}
    model_fn = functions.pop(MODEL)
    if model_fn is None:
        raise ScriptLoadError(no_model_fn(path, vars(module)))
    others = [name for name in (INPUT, PREDICT, OUTPUT) if functions[name] is not None]
    if functions[TRANSFORM] is not None and others:
        raise ScriptLoadError(
            f"{path} defines transform_fn and {others[0]}: transform_fn replaces the others, keep one."
        )
    body = declared_body(path, INPUT, getattr(module, INPUT, None))
    description = description_of(described.description, body, None)
    members = {**functions, **own_members(module)}
    return ScriptModel(path, model_fn=model_fn, **members, body=body, description=description)


def _with_context(module: ModuleType, name: str) -> Function | None:
    """Wrap the script's function so that it takes a context last."""
    function = function_of(module, name)
    if function is None:
        return None
    count = len(PARAMETERS[name])

    def without_context(*arguments: Any) -> Any:
        return function(*arguments[:-1])

    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C have no signature
        return without_context
    if len(signature.parameters) == count + 1 and takes(signature, count + 1):
        return function
    if not takes(signature, count):
        raise ScriptLoadError(
            f"{module.__file__}: {name}{signature} can't be called with {count} arguments, "
            "or with those and a context."
        )
    return without_context


class ModelFunctions:
    """Functions of a loaded script model."""

    def __init__(self, script: ScriptModel, runner: ScriptRunner, deployment: Deployment) -> None:
        self.script = script
        self.runner = runner
        self._model_dir = deployment.script_model or ""
        self._default_accept = deployment.default_accept or media.JSON
        self._model: Any = None

    def begin(self) -> None:
        """Load the model; raises ScriptLoadError if that fails, or if the result can't predict."""
        script = self.script
        try:
            if script.loaded:
                self._model = script.loaded[0]
            else:
                context = ScriptModelContext(self._model_dir)
                self._model = self.runner.call(MODEL, script.model_fn, self._model_dir, context)
        except Exception as error:
            sentence = f"{script.path}: model_fn({self._model_dir!r}) failed: {error}"
            raise ScriptLoadError(sentence) from error
        asks_model = script.predict_fn is None and script.transform_fn is None
        if asks_model and not hasattr(self._model, "predict"):
            raise ScriptLoadError(
                f"{script.path} defines no predict_fn, and the model that its model_fn returned, of type "
                f"{type(self._model).__name__}, has no predict()."
            )

    def reply(self, request: ScriptRequest) -> ScriptReply:
        """Call the functions on one request.

        Raises UnsupportedMediaType, BadInput and NotAcceptable of the default conversions.
        """
        context = ScriptModelContext(self._model_dir, request, self._model)
        accept = media.JSON
        if request.codec is None and (self.script.output_fn or self.script.transform_fn):
            accept = preferred(request.accept, self._default_accept)
        elif request.codec is None:  # the default output_fn knows what it can give
            accept = negotiate(request.accept, tuple(dict.fromkeys((self._default_accept, *ARRAY_TYPES))))
        function, returned = self._transformed(request, accept, context)
        sent = _response(returned)
        reply = script_reply(sent, function, accept, HTTPStatus.OK, self.runner, request.codec)
        return reply.with_header(CUSTOM_ATTRIBUTES, context.reply_attributes)

    def health_context(self) -> ScriptModelContext:
        """Make a context of ``health``, with the model."""
        return ScriptModelContext(self._model_dir, model=self._model)

    def end(self) -> None:
        """Do nothing: requests open nothing."""

    def _transformed(
        self, request: ScriptRequest, accept: str, context: ScriptModelContext
    ) -> tuple[str, Any]:
        """Call the functions; returns the name of the one that answered, and its result."""
        call = self.runner.call
        script = self.script
        if script.transform_fn is not None:
            data, content_type = _data_and_type(request)
            return TRANSFORM, call(
                TRANSFORM, script.transform_fn, self._model, data, content_type, accept, context
            )
        if script.input_fn is None:
            read = context.default_input(request.body)
            # Arrays by name, if the protocol has several.
            read = next(iter(read.values())) if request.codec is not None and len(read) == 1 else read
        else:
            data, content_type = _data_and_type(request)
            if script.body is not None:
                data = call(INPUT, script.body.read, request)
            read = call(INPUT, script.input_fn, data, content_type, context)
        if script.predict_fn is None:
            prediction = call(PREDICT, self._model.predict, read)
        else:
            prediction = call(PREDICT, script.predict_fn, read, self._model, context)
        if script.output_fn is None and request.codec is not None:
            return OUTPUT, call(OUTPUT, request.codec.encode, prediction)
        if script.output_fn is None:
            return OUTPUT, (call(OUTPUT, encode_array, prediction, accept), accept)
        return OUTPUT, call(OUTPUT, script.output_fn, prediction, accept, context)


def _data_and_type(request: ScriptRequest) -> tuple[str | bytes, str]:
    """Body for a script, and its media type without parameters.

    Clients send raw tensors behind JSON as application/json, too, or without a type.
    """
    kind = parse_media_type(request.content_type)
    if kind.name in TEXT and request.codec is not None and request.codec.is_binary:
        return request.body, media.BYTES
    return (as_text(request.body, kind) if kind.name in TEXT else request.body), kind.name


def _response(returned: Any) -> Any:
    """Convert a response of Flask's, as the older toolkit's are, to one of ours; all else stays."""
    if not (hasattr(returned, "get_data") and hasattr(returned, "status_code")):
        return returned
    headers = {name: value for name, value in returned.headers.items() if name.lower() not in FRAMING}
    return Response(returned.get_data(), returned.content_type, returned.status_code, headers)
