"""The base of what stands between web and a model server: it changes who is asked, or what a refusal says."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from tfs_proxy.deployment import Instance
from tfs_proxy.errors import UpstreamRefused
from tfs_proxy.signature import Signature, Target
from tfs_proxy.upstream.interface import ModelAnswer, Records, Upstream

Known = TypeVar("Known")


class Around:
    """`tfs_proxy.upstream.interface.Upstream` around another; by itself it changes nothing."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    def choose(self) -> Instance:
        """The instance that the next request goes to."""
        return self._upstream.choose()

    def signature(self, target: Target) -> Signature:
        """The target's signature; see the interface for what it raises."""
        return self._explained(self._upstream.signature, target)

    def signatures_of(self, target: Target) -> Mapping[str, Signature]:
        """All signatures of the target's version; see the interface for what it raises."""
        return self._explained(self._upstream.signatures_of, target)

    def predict(
        self,
        target: Target,
        records: Records,
        *,
        instance: Instance | None = None,
        timeout_seconds: float | None = None,
        as_json: bool = False,
    ) -> ModelAnswer:
        """Send records; see the interface for what it raises."""
        try:
            asked = self._asked(target)
        except UpstreamRefused as error:
            return self._refusal(ModelAnswer.refused(error), target, records)
        answer = self._upstream.predict(
            asked, records, instance=instance, timeout_seconds=timeout_seconds, as_json=as_json
        )
        return answer if answer.ok else self._refusal(answer, target, records)

    def close(self) -> None:
        """Give connections back; idempotent."""
        self._upstream.close()

    def _explained(self, ask: Callable[[Target], Known], target: Target) -> Known:
        """What ``ask`` gives for a target; a refusal comes in the words of this one."""
        try:
            return ask(self._asked(target))
        except UpstreamRefused as error:
            refusal = self._refusal(ModelAnswer.refused(error), target, None)
            raise UpstreamRefused(refusal.status, refusal.body) from error

    def _asked(self, target: Target) -> Target:
        """What the other is asked for; raises UpstreamRefused if it is not to be asked."""
        return target

    def _refusal(
        self,
        answer: ModelAnswer,
        target: Target,  # noqa: ARG002
        sent: Records | None,  # noqa: ARG002
    ) -> ModelAnswer:
        """What becomes of an answer that is an error; ``sent`` is None if a signature was asked for."""
        return answer
