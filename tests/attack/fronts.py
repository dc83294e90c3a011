"""The servers that are attacked: nginx, gunicorn alone, a pipeline's front, embedded REST."""

import contextlib
import http.client
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from support.archives import has_nginx, pack, without_nginx
from support.model_fixtures import BUILDER, built_by
from support.running import LOOPBACK
from support.stack import Stack

BODY = b'{"instances": [1.0]}'
ECHO = "def model_fn(folder):\n    return 0\n\n\ndef transform_fn(model, data, kind, accept):\n    return data, kind\n"
SECONDS = 30.0

Connect = Callable[[], socket.socket]


@dataclass(frozen=True, slots=True)
class Front:
    """One server: how it is reached, what GET and POST ask there, and the statuses of a good POST."""

    name: str
    connect: Connect
    stack: Stack
    get: str = "/ping"
    post: str = "/invocations"
    good: frozenset[int] = frozenset({200})

    def answers(self, seconds: float = SECONDS) -> bool:
        """Whether a plain request on a new connection is answered with 200."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.status("GET", self.get, b"", seconds) == 200
        return False

    def serves(self, seconds: float = SECONDS) -> bool:
        """Whether a small good POST on a new connection is answered as it should be."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.status("POST", self.post, BODY, seconds) in self.good
        return False

    def status(self, method: str, path: str, body: bytes, seconds: float) -> int:
        """The status of one request; raises what http.client does."""
        with contextlib.closing(self.connect()) as link:
            link.settimeout(seconds)
            head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            link.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)
            reply = http.client.HTTPResponse(link, method=method)
            reply.begin()
            reply.read()
            return reply.status


def model_archive(folder: Path, *names: str) -> str:
    """An archive of some of our SavedModels; half_plus_two if none is named."""
    root = built_by(BUILDER, "models")
    models = {name: root / name for name in names or ("half_plus_two",)}
    return str(pack(folder / "model.tar.gz", {}, models))


@contextlib.contextmanager
def stack_of(
    kind: str, folder: Path, env: Mapping[str, str] | None = None, launcher: Sequence[str] = ()
) -> Iterator[Stack]:
    """A ready stack of a kind: nginx, gunicorn or pipeline; stopped at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    light = {
        "SAGEMAKER_GUNICORN_WORKERS": "2",
        "TFS_PROXY_MAX_DECODED_TOTAL_MB": "400",  # by default half of the machine's memory, however much that is
        **(without_nginx() if kind == "gunicorn" else {}),
        **(env or {}),
    }
    if kind == "pipeline":
        parts = [str(pack(folder / f"part-{n}.tar.gz", {"code/inference.py": ECHO})) for n in (1, 2)]
        stack = Stack(*parts, env=light, launcher=launcher)
    else:
        archive = model_archive(folder, "half_plus_two", "regress_classify", "bytes")
        light["SAGEMAKER_TFS_DEFAULT_MODEL_NAME"] = "half_plus_two"
        stack = Stack(archive, "--model-server", "embedded", env=light, launcher=launcher)
    try:
        stack.wait_ready()
        yield stack
    finally:
        stack.close()


def kinds() -> tuple[str, ...]:
    return ("nginx", "gunicorn", "pipeline") if has_nginx() else ("gunicorn",)


def front_of(kind: str, stack: Stack) -> Front:
    return Front(kind, lambda: socket.create_connection((stack.host, stack.port), SECONDS), stack)


@contextlib.contextmanager
def all_fronts(folder: Path) -> Iterator[list[Front]]:
    grpc = {"nginx": {"TFS_PROXY_GRPC_PORT": "0"}}
    with contextlib.ExitStack() as running:
        with ThreadPoolExecutor() as pool:  # a start waits most of the time
            ready = pool.map(
                lambda kind: running.enter_context(stack_of(kind, folder / kind, grpc.get(kind))), kinds()
            )
            stacks = dict(zip(kinds(), ready, strict=True))
        fronts = [front_of(kind, stack) for kind, stack in stacks.items()]
        yield [*fronts, *_inner(stacks["gunicorn"])]


def _inner(stack: Stack) -> list[Front]:
    """The embedded model server's REST side of a stack."""
    port = stack.model_server_port()
    model = "/v1/models/half_plus_two"
    return [
        Front(
            "embedded",
            lambda: socket.create_connection((LOOPBACK, port), SECONDS),
            stack,
            model,
            f"{model}:predict",
        )
    ]
