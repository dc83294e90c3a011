"""Loads a .keras or .h5 file in safe mode and exports it as a SavedModel; runs in the export process."""

import logging
import re
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.tools.export.child import ExportReport, ExportRequest
from tfs_proxy.tools.export.keras_archive import (
    KerasDescription,
    check_weights,
    read_hdf5_model,
    read_keras_archive,
)
from tfs_proxy.tools.export.reproducible import in_the_same_order, name_by_contents
from tfs_proxy.values.errors import ExportError
from tfs_proxy.values.memory import GIGABYTE
from tfs_proxy.values.names import identifier
from tfs_proxy.values.signature import DEFAULT_SIGNATURE


class Exported(Struct, frozen=True):
    """A Keras model, the inputs of its signature in the structure that the model takes, and names of outputs.

    ``by_output`` gives the names to what the model answers.
    """

    model: Any
    specs: Any
    by_output: Callable[[Any], dict[str, Any]]


def export_named(keras: Any, model: Any, target: Path) -> tuple[ExportReport, Exported]:
    """Writes the SavedModel with one signature; the report has the inputs' names, in their order.

    Nested names are those of ``model.export``. Raises ExportError if two names become one.
    """
    import tensorflow as tf

    # A Sequential model that was loaded has no `input`, and one with nested tensors has no such names.
    taken = getattr(model, "input", model.inputs)
    given = getattr(model, "output", model.outputs)
    if isinstance(taken, list | tuple) and len(taken) == 1:
        taken = taken[0]
    inputs = _by_name(taken, [each.name for each in model.inputs])
    outputs = _by_name(given, _answering(model))
    sent = {name: identifier(name) for name in inputs}
    answers = list(outputs)
    endpoint = DEFAULT_SIGNATURE
    if len(set(sent.values())) < len(sent):
        raise ExportError(
            f"Two of the inputs {', '.join(map(repr, sent))} would have the same name in a SavedModel, whose "
            "inputs are named as Python's variables are: rename one, and save the model again."
        )
    if not inputs or not outputs:
        inputs = {}
        sent = {}
        endpoint = "serve"
        answers = [f"output_{index}" for index in range(len(tf.nest.flatten(given)))]
    keys = {id(tensor): sent[name] for name, tensor in inputs.items()}

    def spec(tensor: Any) -> Any:
        return tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype, keys.get(id(tensor), tensor.name))

    def by_output(answer: Any) -> dict[str, Any]:
        return _by_name(answer, answers) or dict(zip(answers, tf.nest.flatten(answer), strict=True))

    def serve(tensors: Any) -> dict[str, Any]:
        return by_output(model(tensors, training=False))

    specs = tf.nest.map_structure(spec, taken)
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint(endpoint, serve, input_signature=[specs])
    archive.write_out(str(target))
    own_names = {name: key for name, key in sent.items() if name != key}
    renamed = tuple(
        f"The input {name!r} is called {key} by /v1, /v2 and gRPC, since a SavedModel's inputs are named as "
        "Python's variables are; all else takes either name."
        for name, key in own_names.items()
    )
    report = ExportReport(warnings=renamed, inputs=tuple(sent.values()), own_names=own_names)
    return report, Exported(model, specs, by_output)


def _answering(model: Any) -> list[str]:
    """Names of the layers whose outputs are the model's."""
    names: list[str] = getattr(model, "output_names", None) or [model.layers[-1].name]
    return names if len(set(names)) == len(names) else [f"output_{index}" for index in range(len(names))]


def _by_name(structure: Any, names: list[str]) -> dict[str, Any]:
    """Tensors by the keys of a dict, or by ``names``; {} if they are nested deeper."""
    if isinstance(structure, dict):
        named = structure
    else:
        flat = structure if isinstance(structure, list | tuple) else [structure]
        named = dict(zip(names, flat))  # noqa: B905
    return {} if any(isinstance(each, dict | list | tuple) for each in named.values()) else dict(named)


MEMORY_BYTES = 6 * GIGABYTE
MEMORY_FACTOR = 10
"""Memory limit of the process: a fixed part for TensorFlow plus this many times the file's size."""

SHOWN_CHARACTERS = 500
NAMES_SHOWN = 3
OLD = 2
"""The generation of Keras whose files tf-keras reads."""

ALLOW = "If you trust whoever made it, --allow-code lets it run that code."
EXPORT_YOURSELF = (
    "write model.export(FOLDER) in the program that defines them, for a subclassed model with "
    "input_signature=[tf.TensorSpec(SHAPE, DTYPE)] (in Keras 2 by ExportArchive.add_endpoint), and pack the "
    "folder"
)
OUT_OF_MEMORY = "ResourceExhaustedError"
UNKNOWN_NAMES = (
    "Could not locate",
    "Cannot deserialize object of type",
    "Unknown layer",
    "Unknown object",
    "cannot be imported",
)


def export(request: ExportRequest) -> tuple[ExportReport, Exported]:
    """Raises ExportError with advice."""
    path = request.source
    # A configuration of a few bytes may ask for terabytes of weights: that ends this process alone.
    most = MEMORY_BYTES + MEMORY_FACTOR * (path.stat().st_size if path.is_file() else 0)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))
    if path.suffix == ".keras":
        description = read_keras_archive(path)
        check_weights(path)
    else:
        description = read_hdf5_model(path)
    reason = None if request.allow_code else what_runs(description.config)
    if reason is not None:
        raise ExportError(f"{path} is refused: {reason}. {ALLOW}")
    classes = sorted(set(custom_classes(description.config)))
    if classes:
        names = ", ".join(classes[:NAMES_SHOWN]) + (
            f" and {len(classes) - NAMES_SHOWN} more" if len(classes) > NAMES_SHOWN else ""
        )
        raise ExportError(
            f"{path} can't be loaded without the code of its own classes ({names}), which is not in the "
            f"file: {EXPORT_YOURSELF}."
        )
    keras, name = _keras(description)
    with _explained(path, description, name, keras.__version__):
        keras.utils.set_random_seed(0)  # layers such as Dropout have a state that the file may not have
        model = keras.models.load_model(str(path), compile=False, safe_mode=not request.allow_code)
        if not model.built or not getattr(model, "inputs", True):
            raise ExportError(
                f"{path} has a model without input shapes: begin it with keras.Input(SHAPE) or call it once, "
                "and save it again."
            )
        with in_the_same_order():
            report, exported = export_named(keras, model, request.target)
        name_by_contents(request.target)
    return replace(report, exporter=f"{name} {keras.__version__}"), exported


def _keras(description: KerasDescription) -> tuple[Any, str]:
    """The library for the file's generation, and its name.

    Keras 3 reads many files of Keras 2, so it is tried if tf-keras is not installed.
    """
    if description.generation == OLD and find_spec("tf_keras"):
        import tf_keras

        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        return tf_keras, "tf-keras"
    import keras  # type: ignore[import-untyped]

    return keras, "Keras"


@contextmanager
def _explained(path: Path, description: KerasDescription, library: str, version: str) -> Iterator[None]:
    """Turns Keras' exceptions into sentences with advice."""
    try:
        yield
    except ExportError:
        raise
    except Exception as error:
        if isinstance(error, MemoryError) or type(error).__name__ == OUT_OF_MEMORY:
            raise ExportError(
                f"{path} is refused: its model needs far more memory than a file of its size should."
            ) from None
        text = " ".join(str(error).split())[:SHOWN_CHARACTERS]
        advice = _advice(text, description, version)
        raise ExportError(f"{path} can't be exported by {library} {version}: {text} {advice}") from error


def _advice(text: str, description: KerasDescription, version: str) -> str:
    if description.generation == OLD and not find_spec("tf_keras"):
        return f"It was saved by Keras {description.version or 2}: pip install tf-keras."
    is_newer = _numbers(description.version) > _numbers(version)
    if not is_newer and any(words in text for words in UNKNOWN_NAMES):
        also = "" if description.generation == OLD else " If it is an .h5 file of Keras 3, save it as .keras."
        return f"If it has classes of its own, {EXPORT_YOURSELF}.{also}"
    if description.version and description.version != version:
        return f"It was saved by Keras {description.version}: try it with that version."
    if "is not a valid scope name" in text:
        return "That is the name of a layer: set its name to letters, digits and _, and save the model again."
    return "Export it where it was made with model.export(FOLDER), and pack the folder."


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


OWN_PACKAGES = frozenset({"keras", "tf_keras", "builtins"})
CODE = "__lambda__"
LAMBDA_LAYER = "Lambda"
LOADERS: Mapping[str, str] = {
    "TFSMLayer": "loads another SavedModel",
    "TorchModuleWrapper": "unpickles a PyTorch module",
    "FlaxLayer": "wraps a function of Flax",
    "JaxLayer": "wraps a function of JAX",
}
LOOKUPS = frozenset({"IndexLookup", "StringLookup", "IntegerLookup", "TextVectorization"})
MODELLING = re.compile(
    r"builtins|(tf_)?keras(\.src)?\."
    r"(activations|constraints|initializers|layers|losses|metrics|ops|regularizers)(\.\w+)*"
)
"""Modules whose functions models are made of; functions of keras.utils can fetch and unpack files."""

LONGEST_SHOWN = 80


def what_runs(config: Any) -> str | None:
    """The first part that needs code from the file or reads other files, as the end of a sentence.

    It completes "FILE is refused: "; None if everything in ``config`` is Keras' own.
    """
    reasons = (_reason(node, owner) for node, owner in _objects(config))
    return next((reason for reason in reasons if reason is not None), None)


def custom_classes(config: Any) -> Iterator[str]:
    """Classes and functions that are not Keras' own, as far as ``config`` names their modules."""
    for node, _ in _objects(config):
        kind, module, registered = (node.get(key) for key in ("class_name", "module", "registered_name"))
        package = module.split(".", maxsplit=1)[0] if isinstance(module, str) else "keras"
        if isinstance(kind, str) and isinstance(registered, str) and ">" in registered:
            yield _short(registered)
        elif isinstance(kind, str) and package not in OWN_PACKAGES:
            yield _short(f"{module}.{node.get('config') if kind == 'function' else kind}")
        elif isinstance(kind, str) and ">" in kind:
            yield _short(kind)


def _objects(config: Any) -> Iterator[tuple[Mapping[str, Any], str]]:
    """JSON objects in ``config``, each with the words for the model or layer that it is a part of."""
    waiting: list[tuple[Any, str]] = [(config, "the model")]
    while waiting:
        node, owner = waiting.pop()
        if isinstance(node, Mapping):
            inner = node.get("config")
            kind = node.get("class_name")
            name = inner.get("name") if isinstance(inner, Mapping) else None
            owner = f"layer {_short(name)} ({_short(kind)})" if isinstance(name, str) and kind else owner
            yield node, owner
            waiting.extend((child, owner) for child in node.values())
        elif isinstance(node, list):
            waiting.extend((child, owner) for child in node)


def _reason(node: Mapping[str, Any], owner: str) -> str | None:
    kind = node.get("class_name")
    inner = node.get("config")
    if kind == CODE:
        return f"{owner} has a Python lambda, whose byte code is in the file"
    if kind == LAMBDA_LAYER:
        return f"{owner} is a Lambda layer, which runs Python code that the file names or holds"
    if isinstance(kind, str) and kind in LOADERS:
        return f"{owner} {LOADERS[kind]}"
    if (
        isinstance(kind, str)
        and kind in LOOKUPS
        and isinstance(inner, Mapping)
        and isinstance(inner.get("vocabulary"), str)
    ):
        return f"{owner} reads its vocabulary from the file {_short(inner['vocabulary'])}"
    module = str(node.get("module"))
    # A user's own function is imported, never run.
    is_own = module.split(".", maxsplit=1)[0] in OWN_PACKAGES
    if kind == "function" and is_own and MODELLING.fullmatch(module) is None:
        return f"{owner} names the function {_short(module)}.{_short(inner)}"
    return None


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"
