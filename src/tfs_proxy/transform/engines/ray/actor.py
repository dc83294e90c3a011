"""The actor that runs on each node of the cluster, and how it is started there."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tfs_proxy.settings import inherited_environment
from tfs_proxy.transform.engines.node import Capabilities, Node, RunTerms, SharedStorageProbe
from tfs_proxy.transform.options import TransformOptions
from tfs_proxy.transform.run_statistics import Counters, ObjectReport
from tfs_proxy.transform.stores.interface import InputObject

MAX_RESTARTS = 2
"""How often Ray restarts an actor that died on its node, and repeats the calls that it was working on."""
_STACK_SETTINGS = ("SAGEMAKER_", "TFS_")


class NodeActor:
    """A `Node` whose calls run concurrently."""

    def __init__(self, options: TransformOptions, name: str, probe: SharedStorageProbe) -> None:
        self._node = Node(replace(options, environment=inherited_environment()), name, probe)

    async def open(self) -> Capabilities:
        """As `Node.open`."""
        return await asyncio.to_thread(self._node.open)

    async def transform(self, item: InputObject, terms: RunTerms) -> ObjectReport:
        """As `Node.transform`, but wait for the report."""
        return await asyncio.wrap_future(await asyncio.to_thread(self._node.transform, item, terms))

    async def in_progress(self) -> Counters:
        """As `Node.in_progress`."""
        return self._node.in_progress()

    async def close(self) -> None:
        """As `Node.close`."""
        await asyncio.to_thread(self._node.close)


def start_actor(
    options: TransformOptions,
    name: str,
    probe: SharedStorageProbe,
    node_id: str,
    resources: Mapping[str, float],
) -> Any:
    """Start a `NodeActor` on the node ``node_id``; ``name`` is different for every node.

    A serving stack takes all CPUs and GPUs of its node; an actor that only sends takes one CPU.
    """
    serves = options.model is not None
    return (
        ray.remote(NodeActor)
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
