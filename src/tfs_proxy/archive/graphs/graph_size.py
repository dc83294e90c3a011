"""How large a SavedModel's graph is, and whether its ops take long: `report` chooses threads by it."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from tfs_proxy.archive.graphs.op_search import BINARY_FILE, PICTURE_OPS, ops_in
from tfs_proxy.archive.saved_model import graphs_in
from tfs_proxy.errors import DiscoveryError
from tfs_proxy.wire.protobuf_reader import MalformedProtobuf, views

NODE, LIBRARY = 1, 2
FUNCTION, FUNCTION_NODE = 1, 3
HEAVY_OPS: Final = (*("Conv2D", "Conv3D", "DepthwiseConv2dNative", "FusedConv2D"), *PICTURE_OPS)
"""Ops that take long with few weights."""


class GraphSize(Struct, frozen=True):
    """``nodes`` are those of the graph and of all its functions, ``weight_bytes`` variables and constants."""

    nodes: int
    weight_bytes: int
    heavy: bool


def graph_size(folder: Path, most_nodes: int) -> GraphSize | None:
    """Measure the SavedModel in ``folder``; None if there is only the text form, which is not read here.

    Nodes are counted up to ``most_nodes`` and one more. Raises DiscoveryError if it is damaged.
    """
    path = folder / BINARY_FILE
    if not path.is_file():
        return None
    try:
        nodes = sum(1 for graph in graphs_in(folder) for _ in islice(_nodes(graph), most_nodes + 1))
    except MalformedProtobuf as error:
        raise DiscoveryError(f"The graph in {path} is damaged: {error}.") from None
    variables = sum(file.stat().st_size for file in (folder / "variables").glob("variables.data-*"))
    return GraphSize(nodes, variables + path.stat().st_size, bool(ops_in(folder, HEAVY_OPS)))


def _nodes(graph_def: memoryview) -> Iterator[memoryview]:
    for number, content in views(graph_def):
        if number == NODE:
            yield content
        elif number == LIBRARY:
            functions = (function for kind, function in views(content) if kind == FUNCTION)
            for function in functions:
                yield from (node for kind, node in views(function) if kind == FUNCTION_NODE)
