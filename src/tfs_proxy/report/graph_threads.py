"""Whether graphs run on the threads of their requests, by their size: `prepare` chooses, `capacity` says so.

TensorFlow hands a graph to a pool of inter-op threads, which costs a small graph more than it computes, and
gains only what its branches compute side by side.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tfs_proxy.archive.graphs.graph_size import graph_size
from tfs_proxy.report.served import Served
from tfs_proxy.settings import Settings

CALLERS_THREAD: Final = -1
MOST_NODES: Final = 1000
MOST_WEIGHT_BYTES: Final = 4 * 1024 * 1024


def with_graph_threads(settings: Settings, served: Served) -> Settings:
    """The settings with inter-op threads for the graphs that are served, unless the user has chosen them.

    All must be small. Batches gain from the pool, whether the model server or a batch job makes them. Raises
    DiscoveryError if a saved_model.pb is damaged.
    """
    chosen_or_batches = (
        settings.inter_op_parallelism is not None or settings.enable_batching or settings.batch
    )
    lite = any(model.lite for model in served.models)
    if chosen_or_batches or lite or settings.shares_servers or not served.models:
        return settings
    threads, reason = _chosen(path for model in served.models for path in model.versions.values())
    return settings.with_values(inter_op_parallelism=threads, inter_op_reason=reason)


def _chosen(folders: Iterable[Path]) -> tuple[int | None, str]:
    """Inter-op threads, None for the usual ones, and the reason as a phrase."""
    nodes, weight_bytes = 0, 0
    for folder in folders:
        size = graph_size(folder, MOST_NODES)
        if size is None:
            return None, "a graph in text form is not measured"
        if size.nodes > MOST_NODES:
            return None, f"a graph has more than {MOST_NODES} nodes"
        if size.weight_bytes > MOST_WEIGHT_BYTES:
            return None, f"a graph has {size.weight_bytes / 1e6:.1f} MB of weights"
        if size.heavy:
            return None, "a graph convolves or decodes pictures"
        nodes, weight_bytes = max(nodes, size.nodes), max(weight_bytes, size.weight_bytes)
    return CALLERS_THREAD, (
        f"a graph of {nodes} nodes and {weight_bytes / 1e6:.1f} MB runs on its request's thread"
    )
