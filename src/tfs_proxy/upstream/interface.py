"""The interface that web and scripts see of a model server; rest and fakes implement it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tfs_proxy.batch import Batch, Examples, Outputs
from tfs_proxy.deployment import Instance
from tfs_proxy.serving_json.messages import read_outputs
from tfs_proxy.signature import Signature, Target

OK = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model server answered, an error of its own included: its status, headers and JSON."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    url: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is no error."""
        return self.status == OK

    def outputs(self, signature: Signature) -> Outputs:
        """The tensors of an answer to predict; raises UpstreamError if it does not fit."""
        return read_outputs(self.body, signature)


class Upstream(Protocol):
    """A pool of model servers that serve the same models.

    Every method raises UpstreamUnavailable if no instance could be reached and UpstreamTimeout
    where none answered in time. An error answer of the model server is an `Answer`, not raised,
    but by `signature`, which raises UpstreamRefused.
    """

    def choose(self) -> Instance:
        """The instance that the next request goes to: chosen once per request."""

    def signature(self, target: Target) -> Signature:
        """The target's signature, from the model server's metadata, cached per model version.

        Raises BadInput if the model has no signature of that name.
        """

    def predict(
        self,
        target: Target,
        batch: Batch | Examples,
        *,
        instance: Instance | None = None,
        timeout_seconds: float | None = None,
    ) -> Answer:
        """Send decoded records; the answer's JSON is TF Serving's, in row form.

        `Examples` go with the methods classify and regress, a `Batch` with predict. The timeout is the
        pool's own where none is given. Raises BadInput for arrays that no tensor can be made of.
        """

    def predict_json(
        self, target: Target, batch: Batch | Examples, *, instance: Instance | None = None
    ) -> Answer:
        """The same for a caller that wants the answer's JSON alone, whichever way is quicker there."""

    def forward(self, target: Target, body: bytes, *, instance: Instance | None = None) -> Answer:
        """Send JSON that is TF Serving's already, untouched."""

    def close(self) -> None:
        """Give connections back; idempotent."""
