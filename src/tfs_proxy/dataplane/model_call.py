"""What the model server is asked for one request: the client's body, a script's JSON, or its tensors."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfs_proxy.batch import Batch
from tfs_proxy.dataplane.bodies import encoded
from tfs_proxy.dataplane.conversions import Reply, answer_batch, ask
from tfs_proxy.dataplane.conversions import answer as default
from tfs_proxy.dataplane.model_client import PREDICT, retargeted
from tfs_proxy.dataplane.tensors import FORMS, as_batch
from tfs_proxy.dataplane.values import Request
from tfs_proxy.deployment import Instance
from tfs_proxy.errors import BadInput, UpstreamRefused
from tfs_proxy.payload import media_types as media
from tfs_proxy.serving_json.messages import targeted
from tfs_proxy.signature import Target
from tfs_proxy.upstream.interface import Answer, Upstream

INPUT = "input_handler"
EXPECTED = f"it must return the model server's request as str or bytes, {FORMS}, or a tfs_proxy.Request"


def prepared(upstream: Upstream, target: Target, instance: Instance, returned: Any) -> "Asking":
    """Read what ``input_handler`` returned; raises ScriptFailure where it is no request."""
    inputs = returned
    if isinstance(returned, Request):
        inputs = returned.inputs
        target = retargeted(
            target, returned.model_name, returned.version, returned.label, returned.signature, target.method
        )
    if not isinstance(inputs, Mapping) and not hasattr(inputs, "__array__"):
        return _ServingJson(upstream, target, instance, encoded(inputs, INPUT, EXPECTED))
    if target.method != PREDICT:
        raise BadInput(f"tfs-method={target.method} can't be met: the script's tensors are for {PREDICT}.")
    return _Tensors(upstream, target, instance, as_batch(inputs, upstream.signature(target), INPUT))


@dataclass(frozen=True, slots=True)
class Asking(ABC):
    """One request to the model server: answered whole by the default, or for an ``output_handler``."""

    upstream: Upstream
    target: Target
    instance: Instance

    @abstractmethod
    def reply(self, accept: str | None) -> Reply:
        """The answer in a form that Accept takes."""

    @abstractmethod
    def answer(self) -> Answer:
        """The model server's own answer."""

    @abstractmethod
    def answered_target(self) -> Target:
        """The target whose signature the answer's outputs have."""


@dataclass(frozen=True, slots=True)
class ClientsBody(Asking):
    """The client's body, converted as without a script."""

    body: bytes
    content_type: str | None
    limit_bytes: int

    def reply(self, accept: str | None) -> Reply:
        """As it is answered where there is no script."""
        return default(
            self.upstream,
            self.target,
            self.body,
            self.content_type,
            accept,
            self.instance,
            limit_bytes=self.limit_bytes,
        )

    def answer(self) -> Answer:
        """What the model server says to the converted body."""
        try:
            asked = ask(
                self.upstream,
                self.target,
                self.body,
                self.content_type,
                self.instance,
                limit_bytes=self.limit_bytes,
            )
        except UpstreamRefused as refused:
            return Answer(refused.status, refused.body, {"Content-Type": media.JSON})
        return asked.answer

    def answered_target(self) -> Target:
        """With the signature that a body in TF Serving's form names."""
        return targeted(self.target, self.body)


@dataclass(frozen=True, slots=True)
class _ServingJson(Asking):
    """TF Serving's JSON, as the script wrote it."""

    body: bytes

    def reply(self, accept: str | None) -> Reply:
        """As a client's JSON is answered."""
        return default(self.upstream, self.target, self.body, media.JSON, accept, self.instance)

    def answer(self) -> Answer:
        """What comes back, untouched."""
        return self.upstream.forward(self.target, self.body, instance=self.instance)

    def answered_target(self) -> Target:
        """With the signature that the JSON names."""
        return targeted(self.target, self.body)


@dataclass(frozen=True, slots=True)
class _Tensors(Asking):
    """Arrays, typed by the signature."""

    batch: Batch

    def reply(self, accept: str | None) -> Reply:
        """As a client's records are answered."""
        return answer_batch(self.upstream, self.target, self.batch, accept, self.instance)

    def answer(self) -> Answer:
        """What comes back."""
        return self.upstream.predict(self.target, self.batch, instance=self.instance)

    def answered_target(self) -> Target:
        """The target that was asked."""
        return self.target
