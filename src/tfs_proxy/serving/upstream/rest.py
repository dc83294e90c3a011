"""Upstream over REST: pooled connections, and TF Serving's JSON in row form."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Unpack
from urllib.parse import quote

from msgspec.structs import replace

from tfs_proxy.data.serving_json.requests import (
    Metadata,
    read_metadata,
    request_body,
    targeted,
    with_signature,
)
from tfs_proxy.observe.logs.reasons import note_answer_of_model_server
from tfs_proxy.observe.request_record import require_client
from tfs_proxy.observe.traces import with_trace
from tfs_proxy.serving.upstream.interface import JSON_HEADERS, CallOptions, ModelAnswer, Records
from tfs_proxy.serving.upstream.load_balancer import LoadBalancer
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import (
    BadInput,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnavailable,
    from_client,
)
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, Signature, Target, default_signature
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES
from tfs_proxy.wire.http_client import ConnectionPool
from tfs_proxy.wire.http_messages import HttpResponse

PROBE_SECONDS = 2.0
"""Time in which a model server has to say what is loaded."""


class RestUpstream:
    """`tfs_proxy.serving.upstream.interface.Upstream` over REST; threads and greenlets share one.

    ``timeout_seconds`` is how long one call may take, from the first byte sent to the last read.
    Make it in the worker, after the fork: processes must not share connections.
    """

    def __init__(self, instances: Sequence[Instance], timeout_seconds: float) -> None:
        self._load_balancer = LoadBalancer(instances)
        self._connections = {
            instance: ConnectionPool(instance.host, instance.rest_port, timeout_seconds)
            for instance in instances
        }
        self.signatures = Signatures(self._read_metadata)
        self.choose = self._load_balancer.choose
        self.signature = self.signatures.get
        self.signatures_of = self.signatures.by_name

    def predict(self, target: Target, records: Records, **options: Unpack[CallOptions]) -> ModelAnswer:
        """Send TF Serving's JSON, or decoded records written in row form.

        If it names no signature and is refused, it is sent again with the model's default one, where that is
        not TF Serving's.
        """
        if isinstance(records, bytes):
            body = with_signature(records, target.signature)
        else:
            body = request_body(records, target.signature)
        path = f"{model_path(target)}:{target.method}"
        answer = self._request("POST", path, body, options.get("instance"), options.get("timeout_seconds"))
        if answer.status == HTTPStatus.BAD_REQUEST and targeted(target, body).signature is None:
            try:
                name = self.signature(target).name
            except UpstreamRefused:  # the model or its version is what was refused
                return answer
            if name != DEFAULT_SIGNATURE:
                target = replace(target, signature=name)
                return self.predict(target, records, **options)
        return answer

    def relay(
        self,
        instance: Instance,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        seconds: float,
    ) -> HttpResponse:
        """Pass a request on to ``instance``, or to another one if it is down; each has ``seconds``."""
        headers = with_trace(headers)
        return self._load_balancer.send(
            instance,
            lambda chosen: self._connections[chosen].request(
                method, path, body, headers, seconds, require_client
            ),
        )

    def pass_on(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> ModelAnswer:
        """Pass a request on to the least busy instance, within the pool's time."""
        return self._request(method, path, body, None, headers=headers)

    def serves(self, target: Target) -> bool:
        """True if a model server says now that the target, or a version of it, is loaded."""
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
        if answer.status != HTTPStatus.OK:
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
            reply = self._connections[chosen].request(
                method, path, body, headers, timeout_seconds, require_client
            )
            note_answer_of_model_server(reply.body, refused=reply.status != HTTPStatus.OK)
            return ModelAnswer(
                reply.status, reply.body, reply.headers, f"http://{chosen.host}:{chosen.rest_port}{path}"
            )

        return self._load_balancer.send(instance, ask)


def has_available(status: bytes) -> bool:
    """True if TF Serving's status of a model has a version that serves."""
    versions = json.loads(status)["model_version_status"]
    return any(version["state"] == "AVAILABLE" for version in versions)


@lru_cache(maxsize=1024)
def model_path(target: Target) -> str:
    """Path of a model, a version or a label of it, percent-encoded."""
    path = f"/v1/models/{quote(target.model, safe='')}"
    if target.version is not None:
        return f"{path}/versions/{target.version}"
    return path if target.label is None else f"{path}/labels/{quote(target.label, safe='')}"


FOLLOW_SECONDS = 10.0
"""Time for which the version of a label, or of no version, is cached."""

Fetch = Callable[[Target], Metadata]
"""Function that asks the model server for a target's metadata."""


NAME_ONE = (
    f" Name one: tfs-signature-name=NAME in the header {CUSTOM_ATTRIBUTES}, the member "
    '"signature_name" of TensorFlow Serving\'s JSON, the parameter "signature" at /v2, or --signature NAME '
    "of ask, check and transform."
)


def signature_of(known: Mapping[str, Signature], target: Target) -> Signature:
    """Signature that the target means; raises BadInput that lists those that are ``known``."""
    name = target.signature
    signature = known.get(name) if name else default_signature(known)
    if signature is None:
        raise BadInput(
            f'The model {target.model} has no signature "{from_client(name or DEFAULT_SIGNATURE)}"; '
            f"its signatures are {', '.join(sorted(known)) or 'none'}.{'' if name else NAME_ONE}"
        )
    return signature


class Signatures:
    """Cache of the models' signatures; shared by the threads of a worker.

    It knows, too, which version a target without one meant, until when on the monotonic clock.
    """

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._known: dict[tuple[str, int], Mapping[str, Signature]] = {}
        self._meanings: dict[tuple[str, str | None], tuple[int, float]] = {}

    def get(self, target: Target) -> Signature:
        """Signature that the target means; raises as ``fetch`` does, and BadInput if there is none."""
        return signature_of(self.by_name(target), target)

    def by_name(self, target: Target) -> Mapping[str, Signature]:
        """Signatures of the target's model version, by name; raises as ``fetch`` does."""
        version = target.version
        if version is None:
            meaning = self._meanings.get((target.model, target.label))
            if meaning is not None and time.monotonic() < meaning[1]:
                version = meaning[0]
        known = None if version is None else self._known.get((target.model, version))
        return self._ask(target) if known is None else known

    def answered(self, target: Target, version: int | None) -> None:
        """Note which version answered: if the target meant another one, that is asked again."""
        if target.version is None and version is not None:
            meaning = self._meanings.get((target.model, target.label))
            if meaning is not None and meaning[0] != version:
                self._meanings.pop((target.model, target.label), None)

    def forget(self, model: str | None = None) -> None:
        """Forget a model that is unloaded or replaced; None forgets all."""
        for version in [key for key in self._known if model in {None, key[0]}]:
            self._known.pop(version, None)
        for meaning in [key for key in self._meanings if model in {None, key[0]}]:
            self._meanings.pop(meaning, None)

    def _ask(self, target: Target) -> Mapping[str, Signature]:
        metadata = self._fetch(Target(target.model, target.version, target.label))
        if target.version is not None:
            self._known[target.model, target.version] = metadata.signatures
        elif metadata.version is not None:
            self._known[target.model, metadata.version] = metadata.signatures
            until = time.monotonic() + FOLLOW_SECONDS
            self._meanings[target.model, target.label] = metadata.version, until
        return metadata.signatures
