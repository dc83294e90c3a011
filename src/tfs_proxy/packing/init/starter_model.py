"""MODEL -> the name and the signature that a script is written for; the first step of `init`."""

import threading
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.archive.discover import ROOT_MODEL_NAME, DiscoveredModel
from tfs_proxy.archive.graphs.graph_inputs import GraphInputs, read_graph_inputs
from tfs_proxy.archive.summary import read_summary
from tfs_proxy.errors import DiscoveryError
from tfs_proxy.layout import Workspace
from tfs_proxy.names import printable
from tfs_proxy.packing.serve_file import laid_out
from tfs_proxy.report.prepare import prepare
from tfs_proxy.settings import Settings, inherited_environment
from tfs_proxy.signature import DEFAULT_SIGNATURE, PREDICT_METHOD, Signature, TensorSpec

PLACEHOLDER = Signature(
    DEFAULT_SIGNATURE,
    PREDICT_METHOD,
    {"x": TensorSpec("x", "DT_FLOAT", (None, 3))},
    {"y": TensorSpec("y", "DT_FLOAT", (None, 2))},
)
"""The signature that a script is written for without a model."""


class StarterModel(Struct, frozen=True):
    """The model that a script is written for; ``found`` has its versions, None without a model."""

    name: str = ROOT_MODEL_NAME
    signature: Signature = PLACEHOLDER
    found: DiscoveredModel | None = None
    graph: GraphInputs = field(default_factory=GraphInputs)


def read_model(model: str, workspace: Workspace, settings: Settings) -> StarterModel:
    """The default model of an archive, a folder, or a model file; it is unpacked into ``workspace``.

    Raises what `laid_out` and `prepare` raise, and DiscoveryError if there is no signature to write for.
    """
    source = laid_out(model, workspace, settings, threading.Event())
    served = prepare(source, settings, workspace, inherited_environment()).served
    if not served.models:
        raise DiscoveryError(
            f"{printable(model)} has no model but its script: run init without --model to write another."
        )
    found = next(each for each in served.models if each.name == served.default_model)
    graph = read_graph_inputs(found.versions[max(found.versions)])
    return StarterModel(found.name, _signature(found), found, graph)


def _signature(model: DiscoveredModel) -> Signature:
    """The signature of requests that name none. Raises DiscoveryError if it is missing, or not predict's."""
    summary = read_summary(model.versions[max(model.versions)])
    signatures = summary.signatures if summary else {}
    signature = signatures.get(DEFAULT_SIGNATURE)
    if signature is None or signature.method != PREDICT_METHOD:
        known = ", ".join(map(printable, signatures)) or "none that can be read"
        raise DiscoveryError(
            f"The model {model.name} has no signature {DEFAULT_SIGNATURE} for predict (it has {known}): "
            "run init without --model, and name a signature in inference.py by tfs_proxy.Request."
        )
    return replace(
        signature, inputs=_named_as_asked(signature.inputs), outputs=_named_as_asked(signature.outputs)
    )


def _named_as_asked(specs: Mapping[str, TensorSpec]) -> Mapping[str, TensorSpec]:
    """Tensors by the names that requests use: a saved_model.pb has those in the graph, too."""
    return {name: replace(spec, name=name) for name, spec in sorted(specs.items())}
