"""A SavedModel's graph -> what its strings must hold: `openapi` makes examples of it that models take.

Signatures say DT_STRING alike for text, for pictures and for serialized tf.Examples. Field numbers are
those of tensorflow/core/framework/graph.proto, function.proto, node_def.proto and attr_value.proto.
"""

from functools import lru_cache
from pathlib import Path

from msgspec import Struct, field

from tfs_proxy.archive.graphs.op_search import (
    BASE64_OP,
    PARSING_OPS,
    PICTURE_OPS,
    RESIZING_OPS,
    ops_in,
)
from tfs_proxy.archive.graphs.parsed_features import Features, ParsingNode, parsing_nodes
from tfs_proxy.archive.saved_model import graphs_in
from tfs_proxy.errors import DiscoveryError
from tfs_proxy.signature import Signature
from tfs_proxy.wire.protobuf_reader import MalformedProtobuf


class GraphInputs(Struct, frozen=True):
    """What a graph does with strings: nothing that is known, unless said otherwise.

    ``resizes`` says that pictures of other sizes than the model's are taken, ``from_base64`` that they come
    as web-safe base64.
    """

    decodes_pictures: bool = False
    resizes: bool = False
    from_base64: bool = False
    parsing: tuple[ParsingNode, ...] = field(default=())

    def features_of(self, signature: Signature) -> Features | None:
        """The features that a signature's only input is parsed into; None if that is not certain."""
        fed = {spec.tensor.split(":", maxsplit=1)[0] for spec in signature.inputs.values()}
        own = [node.features for node in self.parsing if node.serialized in fed]
        candidates = own or [node.features for node in self.parsing]
        if len(fed) != 1 or not candidates:
            return None
        return candidates[0] if all(each == candidates[0] for each in candidates) else None


@lru_cache(maxsize=64)
def known_inputs(folder: str | None) -> GraphInputs:
    """The graph of a SavedModel that is served, read once; of an unknown folder nothing is known."""
    return GraphInputs() if folder is None else read_graph_inputs(Path(folder))


def read_graph_inputs(folder: Path) -> GraphInputs:
    """Read the SavedModel in ``folder``; raises DiscoveryError if it is damaged.

    A graph is searched for the names of the ops first, and its nodes are read only if some parse
    tf.Examples.
    """
    found = ops_in(folder, (*PICTURE_OPS, *RESIZING_OPS, *PARSING_OPS, BASE64_OP))
    nodes = _parsing(folder) if found & set(PARSING_OPS) else ()
    return GraphInputs(
        decodes_pictures=bool(found & set(PICTURE_OPS)),
        resizes=bool(found & set(RESIZING_OPS)),
        from_base64=BASE64_OP in found,
        parsing=nodes,
    )


def _parsing(folder: Path) -> tuple[ParsingNode, ...]:
    try:
        return tuple(node for graph in graphs_in(folder) for node in parsing_nodes(graph))
    except MalformedProtobuf as error:
        raise DiscoveryError(f"The graph in {folder} is damaged: {error}.") from None
