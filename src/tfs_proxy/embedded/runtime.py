"""The parts of the tensorflow package that serving needs, imported without the rest of it.

``import tensorflow`` takes two to seven seconds and 200 MB more than the session, the loader and the
graph: it brings Keras, tf.data and the distribution strategies. Here an empty package of that name
takes its place, so that its sub-modules import by themselves. That is for the embedded server's own
process alone; where the real package is loaded already, that one is used.
"""

import importlib.util
import logging
import sys
from types import ModuleType
from typing import Any

from tfs_proxy.errors import SettingsError


def _stand_in() -> None:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.submodule_search_locations is None:
        raise SettingsError(
            "The embedded model server needs the tensorflow package: install tfs-proxy[embedded], "
            "or put tensorflow_model_server on PATH."
        )
    package = ModuleType("tensorflow")
    package.__path__ = list(spec.submodule_search_locations)
    package.__file__ = spec.origin
    package.__spec__ = spec
    sys.modules["tensorflow"] = package


if "tensorflow" not in sys.modules:
    _stand_in()

from tensorflow.core.framework import graph_pb2  # noqa: E402
from tensorflow.core.protobuf import config_pb2  # noqa: E402
from tensorflow.python.client import session as _session  # noqa: E402
from tensorflow.python.framework import dtypes as _dtypes  # noqa: E402
from tensorflow.python.framework import errors_impl, importer, ops  # noqa: E402
from tensorflow.python.saved_model import loader_impl  # noqa: E402

logging.getLogger("tensorflow").setLevel(logging.ERROR)

CallableOptions = config_pb2.CallableOptions
ConfigProto = config_pb2.ConfigProto
Graph = ops.Graph
GraphDef = graph_pb2.GraphDef
OpError = errors_impl.OpError
SavedModelLoader = loader_impl.SavedModelLoader
Session = _session.Session
as_dtype = _dtypes.as_dtype
import_graph_def = importer.import_graph_def


def array_operations() -> Any:
    """The array operations of a graph, imported where they are needed."""
    from tensorflow.python.ops import gen_array_ops

    return gen_array_ops


def constant(value: Any, kind: str) -> Any:
    """A constant in the current graph."""
    from tensorflow.python.framework import constant_op

    return constant_op.constant(value, as_dtype(kind))
