"""The model server over REST: pooled connections, and TF Serving's JSON in row form."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from urllib.parse import quote

from tfs_proxy.batch import Batch, Examples
from tfs_proxy.deployment import Instance
from tfs_proxy.errors import UpstreamRefused
from tfs_proxy.serving_json.messages import Metadata, read_metadata, request_body, with_signature
from tfs_proxy.signature import Signature, Target
from tfs_proxy.upstream.interface import OK, Answer
from tfs_proxy.upstream.load_balancer import Roster
from tfs_proxy.upstream.signatures import Signatures
from tfs_proxy.wire.connect import Connect, connect_tcp
from tfs_proxy.wire.connections import Connections, Timeouts
from tfs_proxy.wire.exchange import Patience
from tfs_proxy.wire.http_messages import HttpResponse

_JSON_HEADERS: Mapping[str, str] = {"Content-Type": "application/json"}


class RestUpstream:
    """`tfs_proxy.upstream.interface.Upstream` over REST; threads and greenlets share one.

    ``timeout_seconds`` is how long one call may take, from the first byte sent to the last read.
    Make it in the worker, after the fork: processes must not share connections.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        timeout_seconds: float,
        *,
        idle_connections: int = 256,
        connect: Connect = connect_tcp,
        roster: Roster | None = None,
    ) -> None:
        self._roster = Roster(instances) if roster is None else roster
        self._connections = {
            instance: Connections(
                instance.host,
                instance.rest_port,
                Timeouts(timeout_seconds),
                idle=idle_connections,
                connect=connect,
            )
            for instance in instances
        }
        self.signatures = Signatures(self._read_metadata)

    def choose(self) -> Instance:
        """The least busy instance that is up."""
        return self._roster.choose()

    def signature(self, target: Target) -> Signature:
        """The target's signature; see the interface for what it raises."""
        return self.signatures.get(target)

    def predict(
        self,
        target: Target,
        batch: Batch | Examples,
        *,
        instance: Instance | None = None,
        timeout_seconds: float | None = None,
    ) -> Answer:
        """Write decoded records in row form, send them, and give back what the model server says."""
        return self._post(target, request_body(batch, target.signature), instance, timeout_seconds)

    def predict_json(
        self, target: Target, batch: Batch | Examples, *, instance: Instance | None = None
    ) -> Answer:
        """The same: REST has no other way."""
        return self.predict(target, batch, instance=instance)

    def forward(self, target: Target, body: bytes, *, instance: Instance | None = None) -> Answer:
        """Send TF Serving's JSON untouched, but for the target's signature where it names none.

        Raises BadInput if it names another signature than the target.
        """
        return self._post(target, with_signature(body, target.signature), instance)

    def relay(
        self,
        instance: Instance,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        patience: Patience,
    ) -> HttpResponse:
        """Send a request that somebody else wrote to ``instance``, or to another one if it is down."""
        return self._roster.send(
            instance,
            lambda each: self._connections[each].request_patiently(method, path, body, headers, patience),
        )

    def pass_on(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Send a request that somebody else wrote to the least busy instance, within the pool's time."""
        return self._request(method, path, body, None, headers=headers)

    def close(self) -> None:
        """Close idle connections; idempotent."""
        for connections in self._connections.values():
            connections.close()

    def _read_metadata(self, target: Target) -> Metadata:
        answer = self._request("GET", f"{model_path(target)}/metadata", None, None)
        if answer.status != OK:
            raise UpstreamRefused(answer.status, answer.body)
        return read_metadata(answer.body)

    def _post(
        self, target: Target, body: bytes, instance: Instance | None, timeout_seconds: float | None = None
    ) -> Answer:
        path = f"{model_path(target)}:{target.method}"
        return self._request("POST", path, body, instance, timeout_seconds)

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        instance: Instance | None,
        timeout_seconds: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask the chosen instance, or the least busy one."""
        if headers is None:
            headers = {} if body is None else _JSON_HEADERS

        def ask(each: Instance) -> Answer:
            reply = self._connections[each].request(method, path, body, headers, timeout_seconds)
            return Answer(
                reply.status, reply.body, reply.headers, f"http://{each.host}:{each.rest_port}{path}"
            )

        return self._roster.send(instance, ask)


@lru_cache(maxsize=1024)
def model_path(target: Target) -> str:
    """The path of a model, a version or a label of it, percent-encoded."""
    path = f"/v1/models/{quote(target.model, safe='')}"
    if target.version is not None:
        return f"{path}/versions/{target.version}"
    return path if target.label is None else f"{path}/labels/{quote(target.label, safe='')}"
