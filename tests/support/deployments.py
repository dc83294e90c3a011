"""Deployments of one model on one model server."""

from typing import Any

from tfs_proxy.values.deployment import BodyLimits, Deployment, Instance, TimeLimits

INSTANCE = Instance(0, rest_port=8501, grpc_port=8500, grpc_socket="/run/tfs0.sock")


def deployment(model: str = "m", **changes: Any) -> Deployment:
    """Make a deployment of version 1 of a model, without a script."""
    given: dict[str, Any] = {"models": {model: (1,)}, "instances": (INSTANCE,), "script": None}
    limits: dict[str, Any] = {"bodies": BodyLimits(1000), "times": TimeLimits(60.0)}
    return Deployment(model, import_paths=(), **given | limits | changes)
