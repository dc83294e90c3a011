"""The model server over REST: pooled connections, and TF Serving's JSON in row form."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from urllib.parse import quote

from tfs_proxy.deployment import Instance
from tfs_proxy.errors import UpstreamRefused, UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.observe.logs.reasons import note_answer_of_model_server
from tfs_proxy.observe.tracing.outgoing import with_trace
from tfs_proxy.serving_json.messages import Metadata, read_metadata, request_body, with_signature
from tfs_proxy.signature import Signature, Target
from tfs_proxy.upstream.interface import JSON_HEADERS, OK, ModelAnswer, Records
from tfs_proxy.upstream.load_balancer import LoadBalancer
from tfs_proxy.upstream.signatures import Signatures
from tfs_proxy.wire.connect import Connect, connect_tcp
from tfs_proxy.wire.connections import ConnectionPool, Timeouts
from tfs_proxy.wire.exchange import Patience
from tfs_proxy.wire.http_messages import HttpResponse

PROBE_SECONDS = 2.0
"""How long a model server may take to say what is loaded."""


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
        load_balancer: LoadBalancer | None = None,
    ) -> None:
        self._load_balancer = LoadBalancer(instances) if load_balancer is None else load_balancer
        self._connections = {
            instance: ConnectionPool(
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
        return self._load_balancer.choose()

    def signature(self, target: Target) -> Signature:
        """The target's signature; see the interface for what it raises."""
        return self.signatures.get(target)

    def signatures_of(self, target: Target) -> Mapping[str, Signature]:
        """All signatures of the target's version; see the interface for what it raises."""
        return self.signatures.by_name(target)

    def predict(
        self,
        target: Target,
        records: Records,
        *,
        instance: Instance | None = None,
        timeout_seconds: float | None = None,
        as_json: bool = False,  # noqa: ARG002 - there is no other way here
    ) -> ModelAnswer:
        """Send TF Serving's JSON, or decoded records written in row form."""
        if isinstance(records, bytes):
            body = with_signature(records, target.signature)
        else:
            body = request_body(records, target.signature)
        path = f"{model_path(target)}:{target.method}"
        return self._request("POST", path, body, instance, timeout_seconds)

    def relay(
        self,
        instance: Instance,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        patience: Patience,
    ) -> HttpResponse:
        """Pass a request on to ``instance``, or to another one if it is down."""
        headers = with_trace(headers)
        return self._load_balancer.send(
            instance,
            lambda chosen: self._connections[chosen].request_patiently(method, path, body, headers, patience),
        )

    def pass_on(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> ModelAnswer:
        """Pass a request on to the least busy instance, within the pool's time."""
        return self._request(method, path, body, None, headers=headers)

    def serves(self, target: Target) -> bool:
        """Whether a model server says now that the target, or a version of it, is loaded."""
        # TF Serving's status is that of all versions, whatever label is asked for.
        path = model_path(target) if target.label is None else f"{model_path(target)}/metadata"
        try:
            answer = self._request("GET", path, None, None, PROBE_SECONDS)
        except (UpstreamUnavailable, UpstreamTimeout):
            return False
        return answer.ok and (target.label is not None or has_available(answer.body))

    def close(self) -> None:
        """Close idle connections; idempotent."""
        for connections in self._connections.values():
            connections.close()

    def _read_metadata(self, target: Target) -> Metadata:
        answer = self._request("GET", f"{model_path(target)}/metadata", None, None)
        if answer.status != OK:
            raise UpstreamRefused(answer.status, answer.body)
        return read_metadata(answer.body)

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        instance: Instance | None,
        timeout_seconds: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ModelAnswer:
        """Ask the chosen instance, or the least busy one."""
        if headers is None:
            headers = {} if body is None else JSON_HEADERS
        headers = with_trace(headers)

        def ask(chosen: Instance) -> ModelAnswer:
            reply = self._connections[chosen].request(method, path, body, headers, timeout_seconds)
            note_answer_of_model_server(reply.body, refused=reply.status != OK)
            return ModelAnswer(
                reply.status, reply.body, reply.headers, f"http://{chosen.host}:{chosen.rest_port}{path}"
            )

        return self._load_balancer.send(instance, ask)


def has_available(status: bytes) -> bool:
    """Whether TF Serving's status of a model has a version that serves."""
    versions = json.loads(status)["model_version_status"]
    return any(version["state"] == "AVAILABLE" for version in versions)


@lru_cache(maxsize=1024)
def model_path(target: Target) -> str:
    """The path of a model, a version or a label of it, percent-encoded."""
    path = f"/v1/models/{quote(target.model, safe='')}"
    if target.version is not None:
        return f"{path}/versions/{target.version}"
    return path if target.label is None else f"{path}/labels/{quote(target.label, safe='')}"
