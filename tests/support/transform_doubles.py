"""Stand-ins for the two ends of a batch transform job: the sender of requests and the target of outputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tfs_proxy.transform.files import OUT, InputObject
from tfs_proxy.transform.job import Job
from tfs_proxy.transform.run_statistics import RunStatistics, StorageError
from tfs_proxy.transform.sender import EndpointAddress, Refused, Sender
from tfs_proxy.wire.http_client import Pieces
from tfs_proxy.wire.http_messages import HttpResponse


def answer_unless_bad(body: bytes) -> bytes:
    """A server that refuses a whole body if one of its lines is bad, and else answers in upper case."""
    if b"bad" in body:
        raise Refused(400, "this is bad")
    return body.upper()


class FakeSender(Sender):
    """Answers bodies by ``respond`` and remembers them; it opens no connection."""

    def __init__(self, respond: Callable[[bytes], bytes] = answer_unless_bad) -> None:
        super().__init__(EndpointAddress("server", 80, "/"), Job(input="i", output="o"), 1, RunStatistics())
        self.respond = respond
        self.bodies: list[bytes] = []

    def send(
        self, body: bytes | Pieces, _headers: Mapping[str, str] | None = None, *, in_parts: bool = False
    ) -> HttpResponse:
        text = body if isinstance(body, bytes) else b"".join(body())
        self.bodies.append(text)
        return HttpResponse(200, self.respond(text))


@dataclass
class MemoryTarget:
    """Keeps outputs in memory; ``full_after`` is the number of writes after which the disk is full."""

    objects: dict[str, bytes] = field(default_factory=dict)
    created: list[tuple[str, str, str]] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    aborts: list[str] = field(default_factory=list)
    full_after: int = 1_000_000

    def prepare(self, items: list[InputObject]) -> None:
        """Nothing is left of earlier runs."""

    def finished(self, fingerprint: str) -> dict[str, str]:
        return {}

    def create(self, item: InputObject, ending: str, fingerprint: str) -> "MemorySink":
        if ending == OUT:
            self.created.append((item.name, fingerprint, item.version))
        return MemorySink(self, item.name + ending)

    def remove(self, name: str, ending: str) -> None:
        self.objects.pop(name + ending, None)


@dataclass
class MemorySink:
    """One output in memory."""

    target: MemoryTarget
    name: str
    text: bytes = b""

    def write(self, data: bytes) -> None:
        self.target.full_after -= 1
        if self.target.full_after < 0:
            raise StorageError("the disk is full")
        self.text += data

    def commit(self) -> None:
        self.target.commits.append(self.name)
        self.target.objects[self.name] = self.text

    def abort(self) -> None:
        self.target.aborts.append(self.name)
