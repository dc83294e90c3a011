"""The nodes of a cluster that take part in a run, and the results that they still owe."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ray
from msgspec import Struct, field
from msgspec.structs import replace
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tfs_proxy.errors import StopServing
from tfs_proxy.transform.engines.node import Capabilities, Node, SharedStorageProbe
from tfs_proxy.transform.options import TransformOptions
from tfs_proxy.transform.run_statistics import RunCounts

CLOSE_SECONDS = 60.0
MAX_RESTARTS = 2
"""How often Ray restarts an actor that died on its node, and repeats the calls that it was working on."""
_STACK_SETTINGS = ("SAGEMAKER_", "TFS_")

log = logging.getLogger(__name__)


class RemoteNode(Struct):
    """A node and our actor on it; ``capabilities`` is None until its serving stack is ready.

    ``in_progress`` counts what its unfinished objects have come to, as of the last poll.
    """

    node_id: str
    address: str
    actor: Any
    capabilities: Capabilities | None = None
    in_progress: RunCounts = field(default_factory=RunCounts)
    is_polled: bool = False


class ClusterNodes:
    """The nodes that take part: those that the cluster has, and those that join it during the run.

    ``on_loss`` is called with a node that was just removed because a call to it failed; the second
    argument is the error if the node itself refused to go on, None if the node was lost.
    """

    def __init__(
        self,
        options: TransformOptions,
        probe: SharedStorageProbe,
        on_loss: Callable[[RemoteNode, StopServing | None], None],
    ) -> None:
        self._options = options
        self._probe = probe
        self._on_loss = on_loss
        self._nodes: dict[str, RemoteNode] = {}
        self._seen: set[str] = set()
        self._callbacks: dict[Any, Callable[[Any], None]] = {}

    def __iter__(self) -> Iterator[RemoteNode]:
        return iter(list(self._nodes.values()))

    def __len__(self) -> int:
        return len(self._nodes)

    def add_new(self) -> list[RemoteNode]:
        """Start an actor on every node of the cluster that has none yet."""
        added = []
        for state in ray.nodes():  # type: ignore[no-untyped-call]
            node_id, resources = state["NodeID"], state["Resources"]
            if state["Alive"] and resources.get("CPU", 0) >= 1 and node_id not in self._seen:
                name = f"-ray-{len(self._seen)}"
                self._seen.add(node_id)
                actor = _start_actor(self._options, name, self._probe, node_id, resources)
                node = RemoteNode(node_id, state["NodeManagerAddress"], actor)
                self._nodes[node_id] = node
                log.info("node %s of the Ray cluster takes part", node.address)
                added.append(node)
        return added

    def remove(self, node: RemoteNode, reason: str) -> None:
        """Go on without ``node``; the results that it owes are ignored."""
        log.warning("node %s no longer takes part: %s", node.address, reason)
        del self._nodes[node.node_id]
        ray.kill(node.actor)

    def expect(self, ref: Any, node: RemoteNode, on_result: Callable[[Any], None]) -> None:
        """Have ``on_result`` called with the result of ``ref``, unless ``node`` is removed first."""
        self._callbacks[ref] = lambda done: self._receive(done, node, on_result)

    def wait(self, seconds: float) -> None:
        """Wait at most ``seconds`` for a result, and call the callbacks of all that have come."""
        refs = list(self._callbacks)
        ready, _ = ray.wait(refs, num_returns=1, timeout=seconds)
        if ready:  # more may have come at the same time
            ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        for ref in ready:
            if (callback := self._callbacks.pop(ref, None)) is not None:
                callback(ref)

    def close(self) -> None:
        """End all serving stacks, as far as their nodes are still there."""
        closing = [node.actor.close.remote() for node in self if node.capabilities]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_SECONDS)
        for node in self:
            ray.kill(node.actor)

    def _receive(self, ref: Any, node: RemoteNode, on_result: Callable[[Any], None]) -> None:
        if node.node_id not in self._nodes:
            return
        try:
            result = ray.get(ref)
        except RayTaskError as error:
            if not isinstance(error.cause, StopServing):
                raise
            self.remove(node, str(error.cause))
            self._on_loss(node, error.cause)
        except RayError as error:
            self.remove(node, f"it was lost ({type(error).__name__})")
            self._on_loss(node, None)
        else:
            on_result(result)


def _start_actor(
    options: TransformOptions,
    name: str,
    probe: SharedStorageProbe,
    node_id: str,
    resources: Mapping[str, float],
) -> Any:
    """Start a `Node` on the node ``node_id``; ``name`` is different for every node.

    A serving stack takes all CPUs and GPUs of its node; an actor that only sends takes one CPU.
    """
    serves = options.model is not None
    return (
        ray.remote(Node)
        .options(
            num_cpus=resources["CPU"] if serves else 1,
            num_gpus=resources.get("GPU", 0) if serves else 0,
            max_restarts=MAX_RESTARTS,
            max_task_retries=MAX_RESTARTS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
            runtime_env={"env_vars": _stack_settings(options.environment)},
        )
        .remote(replace(options, environment={}), name, probe)
    )


def _stack_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of serving stacks; other variables, such as PATH, belong to each machine."""
    return {name: value for name, value in environment.items() if name.startswith(_STACK_SETTINGS)}
