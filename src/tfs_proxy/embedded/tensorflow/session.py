"""A SavedModel in a TF1 session: TF Serving's own semantics, and the fastest call from Python.

A prepared callable skips the checks of ``Session.run``; with the inter-op pool of -1 a call stays on
its caller's thread, which saves 15 µs of hand-over.
"""

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfs_proxy.embedded.core.servable import Array, PreparedCall, type_name
from tfs_proxy.embedded.errors import ServingError, from_tensorflow, invalid
from tfs_proxy.embedded.flags import ModelServerFlags
from tfs_proxy.embedded.model_config import read_text
from tfs_proxy.embedded.tensorflow import runtime
from tfs_proxy.embedded.tensorflow.explain import explained
from tfs_proxy.embedded.tensorflow.restore import INDEX, restore
from tfs_proxy.embedded.tensorflow.shape_guard import compiles, op_types
from tfs_proxy.protos import MetaGraphDef, SignatureDef
from tfs_proxy.protos.tensors import QUANTIZED
from tfs_proxy.wire.data_types import DataType

_CALLERS_THREAD = -1

_INWARD = frozenset({DataType.DT_RESOURCE, DataType.DT_VARIANT})
"""Types of handles and lists, which have no value outside of a graph."""


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
    if flags.mixed_precision:
        rewrites.auto_mixed_precision_onednn_bfloat16 = rewrites.ON
    both = flags.tensorflow_session_parallelism
    if intra := flags.tensorflow_intra_op_parallelism or both:
        config.intra_op_parallelism_threads = intra
    if inter := flags.tensorflow_inter_op_parallelism or both:
        config.inter_op_parallelism_threads = inter
    if flags.per_process_gpu_memory_fraction:
        config.gpu_options.per_process_gpu_memory_fraction = flags.per_process_gpu_memory_fraction
    return config


class SessionBackend:
    """A loaded SavedModel and the calls into it."""

    waits = False

    def __init__(self, folder: Path, tags: Sequence[str], config: "runtime.ConfigProto") -> None:
        self.graph = runtime.Graph()
        self.session = runtime.Session(graph=self.graph, config=config)
        try:
            loaded = restore(self.session, folder, tags)
            self._has_variables = (folder / INDEX).exists()
            self.signatures = _signatures(MetaGraphDef.FromString(_without_graph(loaded).SerializeToString()))
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
                return [output if type(output) is np.ndarray else _scalar(output) for output in run(arrays)]
            except ServingError:
                raise
            except Exception as error:
                raise self._explained(error) from error

        return self._typed(call, options.fetch)

    def _typed(self, call: PreparedCall, fetches: Sequence[str]) -> PreparedCall:
        """The call with the quantized types of its outputs, which sessions give as plain numbers.

        Raises ServingError for an output that Python has no value for.
        """
        numbers = [kind.as_datatype_enum for kind in runtime.kinds_of(self.graph, fetches)]
        for number in _INWARD & set(numbers):
            raise invalid(f"Failed to write JSON value for tensor type: {type_name(number)}")
        kinds = [QUANTIZED.get(number) for number in numbers]
        if not any(kinds):
            return call

        def typed(arrays: Sequence[Array]) -> Sequence[Array]:
            outputs = zip(call(arrays), kinds, strict=True)
            return [output.view(kind) if kind else output for output, kind in outputs]

        return typed

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
        return None if shape.rank is None else [-1 if size is None else size for size in shape.as_list()]

    def close(self) -> None:
        """Close the session; its variables go with it, and so does the graph, which is full of cycles."""
        self.session.close()
        del self.session, self.graph
        gc.collect()


def _scalar(value: Any) -> Array:
    """An output without dimensions, which the session gives as a plain value or as bytes."""
    return np.array(value, object) if isinstance(value, bytes) else np.asarray(value)


def _without_graph(loaded: Any) -> Any:
    kept = type(loaded)()
    for name, signature in loaded.signature_def.items():
        kept.signature_def[name].CopyFrom(signature)
    return kept


def _signatures(meta_graph: MetaGraphDef) -> Mapping[str, SignatureDef]:
    return dict(meta_graph.signature_def.items())
