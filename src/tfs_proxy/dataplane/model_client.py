"""The models of a run as a script reaches them: signatures, and ``predict`` with arrays in and out."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy.typing as npt

from tfs_proxy.dataplane.channels import Channels
from tfs_proxy.dataplane.tensors import as_batch
from tfs_proxy.dataplane.values import check_version_or_label
from tfs_proxy.errors import UpstreamRefused, UpstreamUnavailable
from tfs_proxy.payload.decode import DEFAULT_LIMIT_BYTES
from tfs_proxy.signature import Signature, Target
from tfs_proxy.upstream.interface import Upstream

Result = TypeVar("Result")

LOGGER = logging.getLogger("inference")
"""Where a script's own words go: the workers' log."""

PREDICT = "predict"
LOAD_SECONDS = 600.0
LOAD_PAUSE_SECONDS = 0.05
LOADING = frozenset({404, 412, 503})
"""What a model server says of a model that is not loaded yet (contract 3.1)."""


@dataclass(frozen=True, slots=True)
class Backend:
    """What all contexts of a worker share."""

    upstream: Upstream
    models: Mapping[str, tuple[int, ...]]
    default_model: str
    timeout_seconds: float
    max_payload_bytes: int = DEFAULT_LIMIT_BYTES
    channels: Channels = field(default_factory=Channels)


class ModelAccess:
    """What every context offers, that of ``init`` too; its methods may be called from several threads."""

    __slots__ = ("_backend", "_target")

    def __init__(self, backend: Backend, target: Target) -> None:
        self._backend = backend
        self._target = target

    @property
    def models(self) -> Mapping[str, tuple[int, ...]]:
        """Version numbers, ascending, by model name."""
        return self._backend.models

    @property
    def signature(self) -> Signature:
        """The signature that is asked for, of the model that is asked for: names, dtypes and shapes.

        Raises UpstreamRefused where there is no such model, and BadInput where it has no such signature.
        """
        return self._backend.upstream.signature(self._target)

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

        Raises ScriptFailure where ``inputs`` don't fit the signature, UpstreamRefused (``status``,
        ``body``) for an error of the model server, UpstreamUnavailable and UpstreamTimeout: uncaught,
        each is an answer of its own.
        """
        target = retargeted(self._target, model_name, version, label, signature)
        return self._ask(target, inputs, timeout_seconds)

    async def predict_async(self, inputs: Any, **named: Any) -> dict[str, npt.NDArray[Any]]:
        """`predict` for ``async def`` functions: the event loop serves others meanwhile."""
        return await asyncio.to_thread(self.predict, inputs, **named)

    def _ask(self, target: Target, inputs: Any, timeout_seconds: float | None) -> dict[str, npt.NDArray[Any]]:
        upstream = self._backend.upstream
        found = upstream.signature(target)
        answer = upstream.predict(
            target, as_batch(inputs, found, "context.predict"), timeout_seconds=timeout_seconds
        )
        if not answer.ok:
            raise UpstreamRefused(answer.status, answer.body)
        return dict(answer.outputs(found))


class WorkerContext(ModelAccess):
    """What ``init(context)`` gets: the models, and no request.

    It is called while the models load, so ``predict`` and ``signature`` wait until theirs is there.
    """

    __slots__ = ("_clock", "_sleep")

    def __init__(
        self,
        backend: Backend,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(backend, Target(backend.default_model))
        self._clock = clock
        self._sleep = sleep

    @property
    def model_name(self) -> str:
        """The default model."""
        return self._target.model

    @property
    def signature(self) -> Signature:
        """The default model's ``serving_default``."""
        return self._once_loaded(self._target, lambda: self._backend.upstream.signature(self._target))

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
                known = target.model in self._backend.models
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

    Raises ValueError where version and label are both named.
    """
    check_version_or_label(version, label)
    if model_name is not None and model_name != target.model:
        target = Target(model_name)
    if version is None and label is None:
        number, label = target.version, target.label
    else:
        number = None if version is None else int(version)
    return Target(target.model, number, label, signature or target.signature, method)
