"""The models of a run as a script reaches them: signatures, and ``predict`` with arrays in and out."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy.typing as npt
from msgspec import Struct, field

from tfs_proxy.dataplane.plane import DataPlane
from tfs_proxy.errors import UpstreamRefused, UpstreamUnavailable
from tfs_proxy.script.values import check_version_or_label
from tfs_proxy.signature import Signature, Target
from tfs_proxy.upstream.grpc_channels import Channels

Result = TypeVar("Result")

LOGGER = logging.getLogger("inference")
"""Where a script's own words go: the workers' log."""

PREDICT = "predict"
LOAD_SECONDS = 600.0
LOAD_PAUSE_SECONDS = 0.05
LOADING = frozenset({404, 412, 503})
"""What a model server says of a model that is not loaded yet (docs/reference/tensorflow-serving.md)."""


class WorkerModels(Struct, frozen=True):
    """What all contexts of a worker share."""

    plane: DataPlane
    models: Mapping[str, tuple[int, ...]]
    default_model: str
    timeout_seconds: float
    model_dir: str = ""
    channels: Channels = field(default_factory=Channels)


class ModelClient:
    """What every context offers, that of ``init`` too; its methods may be called from several threads."""

    __slots__ = ("_target", "_worker")

    def __init__(self, worker: WorkerModels, target: Target) -> None:
        self._worker = worker
        self._target = target

    @property
    def models(self) -> Mapping[str, tuple[int, ...]]:
        """Version numbers, ascending, by model name."""
        return self._worker.models

    @property
    def model_dir(self) -> str:
        """The folder that is served: the unpacked archive, with ``code/`` in it."""
        return self._worker.model_dir

    @property
    def signature(self) -> Signature:
        """The signature that is asked for, of the model that is asked for: names, dtypes and shapes.

        Raises UpstreamRefused if there is no such model, and BadInput if it has no such signature.
        """
        return self._worker.plane.signature(self._target)

    @property
    def logger(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose records carry ``model_name`` and ``inference_id``."""
        return logging.LoggerAdapter(LOGGER, {"model_name": self._target.model, "inference_id": None})

    def predict(
        self,
        inputs: Any,
        *,
        model_name: str | None = None,
        version: int | str | None = None,
        label: str | None = None,
        signature: str | None = None,
        timeout_seconds: float | None = None,
    ) -> dict[str, npt.NDArray[Any]]:
        """Ask a model: arrays by input name in, by output name out; strings are bytes in object arrays.

        ``inputs`` may be one array for a model of one input, and instead of arrays bytes, str, numbers
        and lists of them. Without a ``model_name`` it is the context's model, and then its version,
        label and signature unless others are named. ``timeout_seconds`` stands in for the run's own limit.

        Raises ScriptFailure if ``inputs`` don't fit the signature, UpstreamRefused (``status``,
        ``body``) for an error of the model server, UpstreamUnavailable and UpstreamTimeout: uncaught,
        each is an answer of its own.
        """
        target = retargeted(self._target, model_name, version, label, signature)
        return self._ask(target, inputs, timeout_seconds)

    async def predict_async(self, inputs: Any, **named: Any) -> dict[str, npt.NDArray[Any]]:
        """`predict` for ``async def`` functions: the event loop serves others meanwhile."""
        return await asyncio.to_thread(self.predict, inputs, **named)

    def _ask(self, target: Target, inputs: Any, timeout_seconds: float | None) -> dict[str, npt.NDArray[Any]]:
        return self._worker.plane.predict(target, inputs, "context.predict", timeout_seconds)


class WorkerContext(ModelClient):
    """What ``init(context)`` gets: the models, and no request.

    It is called while the models load, so ``predict`` and ``signature`` wait until theirs is there.
    """

    __slots__ = ("_clock", "_sleep")

    def __init__(
        self,
        worker: WorkerModels,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(worker, Target(worker.default_model))
        self._clock = clock
        self._sleep = sleep

    @property
    def model_name(self) -> str:
        """The default model."""
        return self._target.model

    @property
    def signature(self) -> Signature:
        """The default model's ``serving_default``."""
        return self._once_loaded(self._target, lambda: self._worker.plane.signature(self._target))

    def _ask(self, target: Target, inputs: Any, timeout_seconds: float | None) -> dict[str, npt.NDArray[Any]]:
        return self._once_loaded(
            target, lambda: super(WorkerContext, self)._ask(target, inputs, timeout_seconds)
        )

    def _once_loaded(self, target: Target, ask: Callable[[], Result]) -> Result:
        deadline = self._clock() + LOAD_SECONDS
        while True:
            try:
                return ask()
            except UpstreamUnavailable:
                if self._clock() > deadline:
                    raise
            except UpstreamRefused as refused:
                known = target.model in self._worker.models
                if refused.status not in LOADING or not known or self._clock() > deadline:
                    raise
            self._sleep(LOAD_PAUSE_SECONDS)


def retargeted(
    target: Target,
    model_name: str | None,
    version: int | str | None,
    label: str | None,
    signature: str | None,
    method: str = PREDICT,
) -> Target:
    """``target`` with what is named in its place; another model has none of its version, label or signature.

    Raises ValueError if version and label are both named.
    """
    check_version_or_label(version, label)
    if model_name is not None and model_name != target.model:
        target = Target(model_name)
    if version is None and label is None:
        number, label = target.version, target.label
    else:
        number = None if version is None else int(version)
    return Target(target.model, number, label, signature or target.signature, method)
