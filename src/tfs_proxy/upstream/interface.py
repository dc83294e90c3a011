"""The interface that web and scripts see of a model server; rest and fakes implement it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tfs_proxy.batch import Batch, Examples, Outputs
from tfs_proxy.deployment import Instance
from tfs_proxy.errors import UpstreamRefused
from tfs_proxy.serving_json.messages import read_outputs
from tfs_proxy.signature import Signature, Target

OK = 200
JSON_HEADERS: Mapping[str, str] = {"Content-Type": "application/json"}

Records = Batch | Examples | bytes
"""What a model server is sent: arrays for predict, features for classify and regress, or JSON of its own."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a model server answered, an error of its own included: its status, headers and JSON."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    url: str = ""

    @classmethod
    def refused(cls, error: UpstreamRefused) -> "ModelAnswer":
        """The answer that ``error`` was raised for."""
        return cls(error.status, error.body, JSON_HEADERS)

    @property
    def version(self) -> int | None:
        """Which version of the model answered; None if that is not known."""
        return None

    @property
    def ok(self) -> bool:
        """Whether it is not an error."""
        return self.status == OK

    def outputs(self, signature: Signature) -> Outputs:
        """The tensors of an answer to predict; raises UpstreamError if it does not fit."""
        return read_outputs(self.body, signature)


class Upstream(Protocol):
    """A pool of model servers that serve the same models.

    Every method raises UpstreamUnavailable if no instance could be reached and UpstreamTimeout
    if none answered in time. An error answer of the model server is a `ModelAnswer`, not raised,
    except by `signature` and `signatures_of`, which raise UpstreamRefused.
    """

    def choose(self) -> Instance:
        """The instance that the next request goes to: chosen once per request."""

    def signature(self, target: Target) -> Signature:
        """The target's signature, from the model server's metadata, cached per model version.

        Raises BadInput if the model has no signature of that name.
        """

    def signatures_of(self, target: Target) -> Mapping[str, Signature]:
        """All signatures of the target's model version, by name; raises what `signature` does."""

    def predict(
        self,
        target: Target,
        records: Records,
        *,
        instance: Instance | None = None,
        timeout_seconds: float | None = None,
        as_json: bool = False,
    ) -> ModelAnswer:
        """Send records; the answer's JSON is TF Serving's, in row form for decoded ones.

        TF Serving's JSON is sent untouched, except that the target's signature is added if it names none.
        The timeout is the pool's own unless one is passed. ``as_json`` says that the caller wants the
        answer's JSON alone, whichever way is quicker there. Raises BadInput for arrays that no tensor can
        be made of, and for JSON that names another signature than the target.
        """

    def close(self) -> None:
        """Give connections back; idempotent."""
