"""Sessions of an endpoint: the instance that has opened one gets the requests that name it."""

import re
import time
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from tfs_proxy.tools.endpoint.aws_api import INVOKE, header_name, refused
from tfs_proxy.tools.endpoint.instances import InstanceGroup, InstanceState, VariantInstance
from tfs_proxy.wire.http_messages import HttpResponse

_OPENED = re.compile(r"([a-zA-Z0-9-]{1,256}); *Expires=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)Z")
"""A container's NewSessionId (docs/reference/sagemaker.md)."""


class SessionHome(Struct, frozen=True):
    """The instance of ``group`` that has a session until ``expires``, in seconds since 1970."""

    group: InstanceGroup
    instance: VariantInstance
    expires: float


class EndpointSessions:
    """The sessions that containers have opened, as far as their answers said so."""

    def __init__(self) -> None:
        self._homes: dict[str, SessionHome] = {}

    def home(self, members: Mapping[str, str]) -> SessionHome | None:
        """The home of the session that a request names; None if it names none that was opened here.

        Raises AwsError if the instance takes no requests any more.
        """
        home = self._homes.get(members.get("SessionId", ""))
        if home is not None and home.instance.state is not InstanceState.IN_SERVICE:
            raise refused(
                f"The session was on the instance {home.instance.name}, which has ended. Open another one."
            )
        return home

    def learn(self, group: InstanceGroup, instance: VariantInstance, answer: HttpResponse) -> None:
        """Notes a session that the answer of ``instance`` opens, and forgets one that it closes."""
        opened = _OPENED.fullmatch(answer.header(header_name(INVOKE, "out", "NewSessionId")) or "")
        if opened is not None:
            now = time.time()
            self._homes = {known: home for known, home in self._homes.items() if home.expires > now}
            expires = datetime.fromisoformat(f"{opened[2]}+00:00").timestamp()
            self._homes[opened[1]] = SessionHome(group, instance, expires)
        self._homes.pop(answer.header(header_name(INVOKE, "out", "ClosedSessionId")) or "", None)
