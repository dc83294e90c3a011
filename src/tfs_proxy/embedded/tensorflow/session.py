"""A SavedModel as a session of TensorFlow, and the calls into it.

TensorFlow Text's ops, which tensorflow_model_server has built in, come from its package if that is installed:
its libraries of ops are loaded once a model asks for one, and nothing of its Python.
"""

import gc
import importlib.metadata
import importlib.util
import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from tfs_proxy.embedded.core.servable import Array, PreparedCall, type_name
from tfs_proxy.embedded.errors import ServingError, from_tensorflow, invalid, tensorflow_errors
from tfs_proxy.embedded.flags import ModelServerFlags
from tfs_proxy.embedded.model_config import read_text
from tfs_proxy.embedded.tensorflow import explain, runtime
from tfs_proxy.embedded.tensorflow.explain import explained
from tfs_proxy.embedded.tensorflow.shape_guard import compiles, op_types, ops_outside
from tfs_proxy.values.resources import available_resources
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.protos import MetaGraphDef, SignatureDef
from tfs_proxy.wire.protos.tensors import numpy_type

log = logging.getLogger(__name__)


_TEXT_OPS = ("python/ops/_*.so", "python/metrics/_*.so")
_loading = threading.Lock()


def provide(op_types: Collection[str]) -> None:
    """Register TensorFlow Text's ops if some of ``op_types`` are missing, and it is installed."""
    with _loading:
        if not runtime.are_registered(op_types):
            _load_text_ops()


@cache
def _load_text_ops() -> None:
    spec = importlib.util.find_spec("tensorflow_text")
    if spec is None or spec.origin is None:
        return
    version = "(of unknown version)"
    with suppress(importlib.metadata.PackageNotFoundError):  # another build of it, such as a nightly one
        version = importlib.metadata.version("tensorflow-text")
    try:
        for library in (
            path for pattern in _TEXT_OPS for path in sorted(Path(spec.origin).parent.glob(pattern))
        ):
            runtime.load_library(str(library))
    except runtime.OpError as error:
        text = "tensorflow-text %s does not fit TensorFlow %s, so its ops are missing: %s"
        log.warning(text, version, runtime.VERSION, error.message)
    else:
        log.info("Loaded the ops of tensorflow-text %s", version)


INDEX = Path("variables") / "variables.index"

_TAG = "serve"
_BINARY = "saved_model.pb"
_TEXT = "saved_model.pbtxt"
_INIT_SIGNATURE = "__saved_model_init_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")
_ASSETS = "saved_model_assets"


def restore(session: Any, folder: Path) -> Any:
    """Load the graph of the tag ``serve``, its variables and tables; TensorFlow's own MetaGraphDef of it.

    Raises ServingError.
    """
    meta_graph = _tagged(_read(folder), folder)
    writer = meta_graph.meta_info_def
    known = writer.stripped_op_list if writer.HasField("stripped_op_list") else None
    provide(ops_outside(meta_graph.graph_def))
    try:
        with tensorflow_errors(), session.graph.as_default():
            runtime.import_graph_def(meta_graph.graph_def, name="", producer_op_list=known)
    except ServingError as error:
        # NOTE: Python's importer says ValueError for TensorFlow's INVALID_ARGUMENT.
        was_value_error = isinstance(error.__cause__, ValueError)
        raise invalid(error.text) if was_value_error else explain.explained(error) from error
    listed = list(meta_graph.asset_file_def)
    if not listed and _ASSETS in meta_graph.collection_def:
        for packed in meta_graph.collection_def[_ASSETS].any_list.value:
            listed.append(runtime.AssetFileDef())
            packed.Unpack(listed[-1])
    assets = {
        asset.tensor_info.name: np.array(f"{folder}/assets/{asset.filename}".encode(), object)
        for asset in listed
    }
    if (folder / INDEX).exists():
        _variables(session, meta_graph.saver_def, folder, assets)
    else:
        log.warning("The SavedModel in %s has no variables: there is no %s", folder, INDEX)
    if first := _init_op(meta_graph, folder):
        _run(session, assets, first)
    return meta_graph


def _read(folder: Path) -> Any:
    def of_text(content: bytes) -> Any:
        return text_format.Parse(content.decode(), runtime.SavedModel())

    for name, form, parse in ((_BINARY, "binary", runtime.SavedModel.FromString), (_TEXT, "text", of_text)):
        path = folder / name
        if path.exists():
            content = path.read_bytes()
            try:
                return parse(content)
            except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
                text = f"Can't parse {path} as {form} proto. {explain.unreadable(content)}"
                raise ServingError(GrpcCode.DATA_LOSS, text) from error
    raise ServingError(
        GrpcCode.NOT_FOUND,
        f"Could not find SavedModel .pb or .pbtxt at supplied export directory path: {folder}. "
        "Check that the directory exists and that you have the right permissions for accessing it."
        + explain.other_files(folder),
    )


def _tagged(saved_model: Any, folder: Path) -> Any:
    for meta_graph in saved_model.meta_graphs:
        if set(meta_graph.meta_info_def.tags) == {_TAG}:
            return meta_graph
    known = [sorted(meta_graph.meta_info_def.tags) for meta_graph in saved_model.meta_graphs]
    raise ServingError(
        GrpcCode.NOT_FOUND,
        f"Could not find meta graph def matching supplied tags: {{ {_TAG} }}. To inspect "
        "available tag-sets in the SavedModel, please use the SavedModel CLI: `saved_model_cli`. "
        + explain.other_tags(known, folder),
    )


def _variables(session: Any, saver: Any, folder: Path, assets: Mapping[str, Array]) -> None:
    path = np.array(str(folder / "variables" / "variables").encode(), object)
    try:
        _run(session, {saver.filename_tensor_name: path, **assets}, saver.restore_op_name)
    except ServingError as error:
        raise explain.of_files(error, folder / "variables") from error


def _init_op(meta_graph: Any, folder: Path) -> str:
    """The operation that fills tables, "" for none."""
    if _INIT_SIGNATURE in meta_graph.signature_def:
        outputs = meta_graph.signature_def[_INIT_SIGNATURE].outputs
        if _INIT_SIGNATURE not in outputs:
            raise ServingError(GrpcCode.FAILED_PRECONDITION, f"Could not find output {_INIT_SIGNATURE}")
        return str(outputs[_INIT_SIGNATURE].name)
    for name in _INIT_COLLECTIONS:
        if name in meta_graph.collection_def:
            operations = list(meta_graph.collection_def[name].node_list.value)
            if len(operations) != 1:
                raise ServingError(
                    GrpcCode.FAILED_PRECONDITION, f"Expected exactly one main op in : {folder}"
                )
            return str(operations[0])
    return ""


def _run(session: Any, feeds: Mapping[str, Array], target: str) -> None:
    options = runtime.CallableOptions(feed=feeds, target=[target])
    try:
        with tensorflow_errors():
            session._make_callable_from_options(options)(*feeds.values())  # noqa: SLF001
    except ServingError as error:
        raise explain.explained(error) from error


_CALLERS_THREAD = -1


def session_config(flags: ModelServerFlags) -> "runtime.ConfigProto":
    """TF Serving's session options: one pass of the graph optimiser, threads as asked.

    Flags that are given win over the file of options. Raises SettingsError if that can't be used.
    """
    config = runtime.ConfigProto()
    if flags.tensorflow_session_config_file:
        read_text(flags.tensorflow_session_config_file, config)
    rewrites = config.graph_options.rewrite_options
    if not rewrites.meta_optimizer_iterations:
        rewrites.meta_optimizer_iterations = rewrites.ONE
    if flags.tensorflow_intra_op_parallelism:
        config.intra_op_parallelism_threads = flags.tensorflow_intra_op_parallelism
    if flags.tensorflow_inter_op_parallelism:
        config.inter_op_parallelism_threads = flags.tensorflow_inter_op_parallelism
    if flags.per_process_gpu_memory_fraction:
        config.gpu_options.per_process_gpu_memory_fraction = flags.per_process_gpu_memory_fraction
    return config


class SessionBackend:
    """A loaded SavedModel and the calls into it."""

    waits = False

    def __init__(self, folder: Path, config: "runtime.ConfigProto") -> None:
        self.at_once = max(config.inter_op_parallelism_threads, 0) or available_resources().cores
        self.graph = runtime.Graph()
        self.session = runtime.Session(graph=self.graph, config=config)
        try:
            loaded = restore(self.session, folder)
            self._has_variables = (folder / INDEX).exists()
            kept = type(loaded)()
            for name, signature in loaded.signature_def.items():
                kept.signature_def[name].CopyFrom(signature)
            ours = MetaGraphDef.FromString(kept.SerializeToString())
            self.signatures: Mapping[str, SignatureDef] = dict(ours.signature_def.items())
            self.op_types = op_types(loaded.graph_def)
            self.compiled = compiles(loaded.graph_def)
            del loaded
        except BaseException:
            self.session.close()
            raise

    def prepare(self, feeds: Sequence[str], fetches: Sequence[str]) -> PreparedCall:
        """A call on this session, from arrays in the order of ``feeds`` to those of ``fetches``.

        Raises ServingError if TensorFlow cannot prepare it.
        """
        options = runtime.CallableOptions()
        options.feed.extend(feeds)
        options.fetch.extend(fetches)
        options.run_options.inter_op_thread_pool = _CALLERS_THREAD
        try:
            run = runtime.prepared(self.session, options)
        except Exception as error:
            raise self._explained(error) from error

        def call(arrays: Sequence[Array]) -> Sequence[Array]:
            try:
                return list(map(np.asarray, run(arrays)))  # one without dimensions comes as a plain value
            except ServingError:
                raise
            except Exception as error:
                raise self._explained(error) from error

        for number in (kind.as_datatype_enum for kind in runtime.kinds_of(self.graph, fetches)):
            if numpy_type(number) is None:
                raise invalid(f"Failed to write JSON value for tensor type: {type_name(number)}")
        return call

    def _explained(self, error: Exception) -> ServingError:
        return explained(from_tensorflow(error), has_variables=self._has_variables)

    def static_sizes(self, tensor: str) -> list[int] | None:
        """The sizes that the graph has for a tensor, -1 for an unknown one; None for an unknown rank.

        None as well for a name that is not in the graph: only the requests that use it fail.
        """
        try:
            shape = self.graph.get_tensor_by_name(runtime.tensor_name(tensor)).shape
        except (KeyError, ValueError):
            return None
        if shape.rank is None:
            return None
        return [-1 if size is None else size for size in shape.as_list()]

    def close(self) -> None:
        """Close the session; its variables go with it, and so does the graph, which is full of cycles."""
        self.session.close()
        del self.session, self.graph
        gc.collect()
