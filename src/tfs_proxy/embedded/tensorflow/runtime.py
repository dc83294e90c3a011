"""The parts of the tensorflow package that serving needs, imported without the rest of it.

``import tensorflow`` takes two to seven seconds and 200 MB more than the session, the loader and the
graph: it brings Keras, tf.data and the distribution strategies. Here an empty package of that name
takes its place, so that its sub-modules import by themselves. That is for the embedded server's own
process alone; if the real package is loaded already, that one is used.
"""

import importlib.util
import logging
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

from tfs_proxy.embedded.errors import MAX_STRING_DIMENSIONS, too_many_dimensions


def _stand_in() -> None:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("tensorflow is not installed", name="tensorflow")
    package = ModuleType("tensorflow")
    package.__path__ = list(spec.submodule_search_locations)
    package.__file__ = spec.origin
    package.__spec__ = spec
    sys.modules["tensorflow"] = package


if "tensorflow" not in sys.modules:
    _stand_in()

from tensorflow.core.framework import graph_pb2  # noqa: E402
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, saved_model_pb2  # noqa: E402
from tensorflow.python.client import pywrap_tf_session  # noqa: E402
from tensorflow.python.client import session as _session  # noqa: E402
from tensorflow.python.framework import (  # noqa: E402
    constant_op,
    errors_impl,
    function,
    importer,
    op_def_registry,
    ops,
    versions,
)
from tensorflow.python.framework import dtypes as _dtypes  # noqa: E402
from tensorflow.python.ops import gen_array_ops  # noqa: E402

logging.getLogger("tensorflow").setLevel(logging.ERROR)

AssetFileDef = meta_graph_pb2.AssetFileDef
CallableOptions = config_pb2.CallableOptions
ConfigProto = config_pb2.ConfigProto
Graph = ops.Graph
GraphDef = graph_pb2.GraphDef
OpError = errors_impl.OpError
SavedModel = saved_model_pb2.SavedModel
Session = _session.Session
VERSION: str = versions.VERSION
array_operations = gen_array_ops
as_dtype = _dtypes.as_dtype
import_graph_def = importer.import_graph_def

_PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})
_TOGETHER = "_class"
"""The attribute that names the nodes which a node is to be placed with."""


def prepared(session: Any, options: Any) -> Callable[[Sequence[Any]], list[Any]]:
    """A call on a session: arrays in the order of the feeds to those of the fetches.

    The callable that TensorFlow's Python makes of it looks for options on every call. The call raises
    ServingError for an output of strings with too many dimensions.
    """
    count = len(options.fetch)
    places = _flattened_strings(session.graph, options)
    prepared_call = session._make_callable_from_options(options)  # noqa: SLF001
    run = pywrap_tf_session.TF_SessionRunCallable

    def call(arrays: Sequence[Any]) -> list[Any]:
        outputs = run(session._session, prepared_call._handle, arrays, None)  # noqa: SLF001
        for place, shape in zip(places, outputs[count:], strict=True):
            if len(shape) > MAX_STRING_DIMENSIONS:
                raise too_many_dimensions("An output", len(shape), strings=True)
            outputs[place] = outputs[place].reshape(shape)
        return outputs[:count]  # type: ignore[no-any-return]

    return call


def _flattened_strings(graph: Any, options: Any) -> list[int]:
    """Places of fetches that are strings: they are made flat, and their shapes are fetched behind all.

    No graph tells for sure how many dimensions an output will have: a request may bring more than declared.
    """
    places = []
    with graph.as_default(), suppress(KeyError, ValueError):  # TensorFlow refuses a name that is not there
        for place, kind in enumerate(kinds_of(graph, options.fetch)):
            if kind == _dtypes.string:
                tensor = graph.get_tensor_by_name(tensor_name(options.fetch[place]))
                options.fetch[place] = array_operations.reshape(tensor, constant([-1], "int32")).name
                options.fetch.append(array_operations.shape(tensor).name)
                places.append(place)
    return places


def are_registered(op_types: Collection[str]) -> bool:
    return all(op_def_registry.get(op_type) is not None for op_type in op_types)


def load_library(path: str) -> None:
    """Register the ops and kernels of a shared library. Raises OpError if it does not fit."""
    pywrap_tf_session.TF_LoadLibrary(path)


def constant(value: Any, kind: str) -> Any:
    return constant_op.constant(value, as_dtype(kind))


def batch_function(**arguments: Any) -> Sequence[Any]:
    """TensorFlow's batch op, added to the current graph."""
    from tensorflow.python.ops import gen_batch_ops

    return gen_batch_ops.batch_function(**arguments)  # type: ignore[no-any-return]


def kinds_of(graph: Any, names: Sequence[str]) -> list[Any]:
    return [graph.get_tensor_by_name(tensor_name(name)).dtype.base_dtype for name in names]


def tensor_name(name: str) -> str:
    """A tensor's whole name; a signature may leave out ``:0``."""
    return name if ":" in name else f"{name}:0"


def _part(
    whole: Any, is_given: Callable[[str], bool], outside: Collection[str], fetches: Sequence[str]
) -> Any:
    """Nodes that make ``fetches`` of the given tensors, without control edges from nodes ``outside``."""
    nodes = {node.name: node for node in whole.node}
    wanted: set[str] = set()
    waiting = list(fetches)
    while waiting:
        name = waiting.pop()
        node = name.removeprefix("^").partition(":")[0]
        is_outside = node in outside if name.startswith("^") else is_given(tensor_name(name))
        if not is_outside and node not in wanted:
            wanted.add(node)
            waiting.extend(nodes[node].input)
    part = GraphDef(versions=whole.versions, library=whole.library)
    part.node.extend(node for node in whole.node if node.name in wanted)
    for copied in part.node:
        kept = [source for source in copied.input if not (source.startswith("^") and source[1:] in outside)]
        if len(kept) < len(copied.input):
            del copied.input[:]
            copied.input.extend(kept)
        if _TOGETHER in copied.attr:
            colocated = copied.attr[_TOGETHER].list.s
            near = [name for name in colocated if name.decode().removeprefix("loc:@") in wanted]
            del colocated[:]
            colocated.extend(near)
    return part


def graph_function(graph: Any, feeds: Sequence[str], fetches: Sequence[str]) -> Any:
    """A function of the graph's library, from feeds to fetches, whose body is a copy of the graph's part."""
    # A whole graph would bring its restore operations along, which run in any function they are in.
    # Control edges from a placeholder that is fed go with it, as in a session.
    whole = graph.as_graph_def()
    fed = set(map(tensor_name, feeds))
    replaced = {node.name for node in whole.node if node.op in _PLACEHOLDERS and f"{node.name}:0" in fed}
    computed = [fetch for fetch in fetches if tensor_name(fetch) not in fed]
    part = _part(whole, fed.__contains__, replaced, computed)
    names = list(map(tensor_name, feeds))
    wanted = list(map(tensor_name, fetches))
    used = {tensor_name(source) for node in part.node for source in node.input} | set(wanted)
    kinds = kinds_of(graph, feeds)

    def body(*inputs: Any) -> Any:
        fed = {name: given for name, given in zip(names, inputs, strict=True) if name in used}
        return list(map(_value, import_graph_def(part, fed, return_elements=wanted, name="")))

    with graph.as_default():
        name = f"batched_{len(part.library.function)}"
        defined = function.Defun(*kinds, func_name=name)(body)
        defined.add_to_graph(graph)
    return defined


def _value(tensor: Any) -> Any:
    """A tensor as a function may return it: what a variable of TF1 holds, instead of the variable."""
    return array_operations.identity(tensor) if tensor.dtype != tensor.dtype.base_dtype else tensor
