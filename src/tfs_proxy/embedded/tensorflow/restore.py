"""A SavedModel's folder into a session, step by step as TensorFlow's C++ loader does it.

TensorFlow's Python loader is not the one that TF Serving has: it stumbles over collections that serving
has no use for, wants variables even if a model has none, and words its errors for the author of a
program.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from tfs_proxy.embedded.core.servable import Array
from tfs_proxy.embedded.errors import ServingError, invalid, tensorflow_errors
from tfs_proxy.embedded.tensorflow import explain, extra_ops, runtime
from tfs_proxy.embedded.tensorflow.shape_guard import ops_outside
from tfs_proxy.wire.grpc_codes import GrpcCode

log = logging.getLogger(__name__)

INDEX = Path("variables") / "variables.index"

_BINARY, _TEXT = "saved_model.pb", "saved_model.pbtxt"
_INIT_SIGNATURE = "__saved_model_init_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")
_ASSETS = "saved_model_assets"


def restore(session: Any, folder: Path, tags: Sequence[str]) -> Any:
    """Load the graph of these tags, its variables and tables; TensorFlow's own MetaGraphDef of it.

    Raises ServingError.
    """
    meta_graph = _tagged(_read(folder), tags, folder)
    _import(session.graph, meta_graph)
    assets = _assets(meta_graph, folder)
    if (folder / INDEX).exists():
        _variables(session, meta_graph.saver_def, folder, assets)
    else:
        log.warning("The SavedModel in %s has no variables: there is no %s", folder, INDEX)
    if first := _init_op(meta_graph, folder):
        _run(session, assets, first)
    return meta_graph


def _read(folder: Path) -> Any:
    for name, form, parse in ((_BINARY, "binary", runtime.SavedModel.FromString), (_TEXT, "text", _of_text)):
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


def _of_text(content: bytes) -> Any:
    return text_format.Parse(content.decode(), runtime.SavedModel())


def _tagged(saved_model: Any, tags: Sequence[str], folder: Path) -> Any:
    for meta_graph in saved_model.meta_graphs:
        if set(meta_graph.meta_info_def.tags) == set(tags):
            return meta_graph
    known = [sorted(meta_graph.meta_info_def.tags) for meta_graph in saved_model.meta_graphs]
    raise ServingError(
        GrpcCode.NOT_FOUND,
        f"Could not find meta graph def matching supplied tags: {{ {' '.join(tags)} }}. To inspect "
        "available tag-sets in the SavedModel, please use the SavedModel CLI: `saved_model_cli`. "
        + explain.other_tags(known, folder),
    )


def _import(graph: Any, meta_graph: Any) -> None:
    writer = meta_graph.meta_info_def
    known = writer.stripped_op_list if writer.HasField("stripped_op_list") else None
    extra_ops.provide(ops_outside(meta_graph.graph_def))
    try:
        with tensorflow_errors(), graph.as_default():
            runtime.import_graph_def(meta_graph.graph_def, name="", producer_op_list=known)
    except ServingError as error:
        # NOTE: Python's importer says ValueError for TensorFlow's INVALID_ARGUMENT.
        was_value_error = isinstance(error.__cause__, ValueError)
        raise invalid(error.text) if was_value_error else explain.explained(error) from error


def _variables(session: Any, saver: Any, folder: Path, assets: Mapping[str, Array]) -> None:
    path = np.array(str(folder / "variables" / "variables").encode(), object)
    try:
        _run(session, {saver.filename_tensor_name: path, **assets}, saver.restore_op_name)
    except ServingError as error:
        raise explain.of_files(error, folder / "variables") from error


def _assets(meta_graph: Any, folder: Path) -> dict[str, Array]:
    """The path of each asset by the tensor that it is for."""
    listed = list(meta_graph.asset_file_def)
    if not listed and _ASSETS in meta_graph.collection_def:
        listed = list(map(_unpacked, meta_graph.collection_def[_ASSETS].any_list.value))
    return {
        asset.tensor_info.name: np.array(f"{folder}/assets/{asset.filename}".encode(), object)
        for asset in listed
    }


def _unpacked(asset: Any) -> Any:
    message = runtime.AssetFileDef()
    asset.Unpack(message)
    return message


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
