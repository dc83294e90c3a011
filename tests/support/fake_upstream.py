"""A model server in memory, behind the app in web tests and behind scripts in unit tests."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tfs_proxy.data.serving_json.requests import request_body, with_signature
from tfs_proxy.serving.upstream.interface import ModelAnswer, Records
from tfs_proxy.serving.upstream.rest import signature_of
from tfs_proxy.values.batch import Batch, Examples
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.signature import Signature, Target


@dataclass(frozen=True, slots=True)
class Call:
    """One request that a `FakeUpstream` got; ``batch`` is None where JSON was forwarded.

    ``body`` is TF Serving's JSON, as the REST upstream would have sent it.
    """

    target: Target
    body: bytes
    batch: Batch | Examples | None = None
    instance: Instance | None = None
    timeout_seconds: float | None = None

    @property
    def json(self) -> object:
        """The body, parsed."""
        return json.loads(self.body)


def no_answer(_: Call) -> ModelAnswer:
    """Answers every call with no predictions."""
    return ModelAnswer(200, b'{"predictions": []}')


@dataclass(slots=True)
class FakeUpstream:
    """Implements `tfs_proxy.serving.upstream.interface.Upstream`: ``answer`` is called for every request.

    ``answer`` may raise UpstreamUnavailable or UpstreamTimeout, as a real one does. ``calls`` keeps
    what was asked.
    """

    signatures: Mapping[str, Signature] = field(default_factory=dict)
    answer: Callable[[Call], ModelAnswer] = no_answer
    instance: Instance = Instance(0, 8501, 8500, "")  # noqa: RUF009
    calls: list[Call] = field(default_factory=list)
    closed: bool = False

    def choose(self) -> Instance:
        """The only instance."""
        return self.instance

    def signature(self, target: Target) -> Signature:
        """The signature of the target's name; raises BadInput where there is none."""
        return signature_of(self.signatures, target)

    def signatures_of(self, target: Target) -> Mapping[str, Signature]:
        """All of them."""
        return self.signatures

    def predict(
        self,
        target: Target,
        records: Records,
        *,
        instance: Instance | None = None,
        timeout_seconds: float | None = None,
        as_json: bool = False,
    ) -> ModelAnswer:
        """Answer records."""
        if isinstance(records, bytes):
            call = Call(target, with_signature(records, target.signature), None, instance, timeout_seconds)
        else:
            body = request_body(records, target.signature)
            call = Call(target, body, records, instance, timeout_seconds)
        self.calls.append(call)
        return self.answer(call)

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True
