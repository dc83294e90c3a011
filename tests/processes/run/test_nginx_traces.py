"""nginx and Python read the parent of a request alike: a real nginx says what it makes of each header."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX
from support.nginx_config import trace_maps
from support.ports import free_port
from support.running import LOOPBACK, RunningProcess
from tfs_proxy.observe.traces import parent_in
from tfs_proxy.run.nginx import config
from tfs_proxy.values.deployment import TraceSampling

pytestmark = NEEDS_NGINX

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
HEADERS: list[Mapping[str, str]] = [
    {},
    *(
        {"traceparent": value}
        for value in (SAMPLED, UNSAMPLED, SAMPLED.upper(), f"{SAMPLED}-x", "x", "0" * 9000)
    ),
    {"traceparent": f"01-{TRACE}-{SPAN}-01-x"},
    {"traceparent": f"ff-{TRACE}-{SPAN}-01"},
    {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
    {"X-Amzn-Trace-Id": f"Root=1-{TRACE[:8]}-{TRACE[8:]};Parent={SPAN};Sampled=1"},
    {ATTRIBUTES: f"traceparent={SAMPLED}"},
    {ATTRIBUTES: f"a=b, traceparent = {UNSAMPLED},c=d"},
    {ATTRIBUTES: f"traceparent=x,traceparent={SAMPLED}"},
    {ATTRIBUTES: f"mytraceparent={SAMPLED}"},
    {ATTRIBUTES: "," * 8000},
    {ATTRIBUTES: " " * 4000 + f"traceparent={SAMPLED}"},
    {"traceparent": UNSAMPLED, ATTRIBUTES: f"traceparent={SAMPLED}"},
    {"traceparent": "x", ATTRIBUTES: f"traceparent={UNSAMPLED}"},
    {"traceparent": "x", ATTRIBUTES: "tfs-model-name=m"},
]


class Nginx(RunningProcess):
    """nginx that answers with what it has decided: whether it is traced, and the traceparent that goes on."""

    def __init__(self, folder: Path, sampling: TraceSampling) -> None:
        port = free_port()
        names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = " ".join(f"{name}_temp_path {folder}/{name};" for name in names)
        conf = folder / "nginx.conf"
        conf.write_text(
            f"daemon off; pid {folder}/pid; error_log stderr;\nevents {{}}\nhttp {{ access_log off; {paths}\n"
            f"large_client_header_buffers 4 16k; {trace_maps(sampling)}\n"
            f"server {{ listen {LOOPBACK}:{port}; location / {{\n"
            'return 200 "$traced|$valid_traceparent"; } } }'
        )
        program = config.find() or ""
        super().__init__([program, "-p", str(folder), "-c", str(conf), "-e", "stderr"], port=port)

    def decide(self, headers: Mapping[str, str]) -> tuple[bool, str]:
        """Whether a request with these headers is traced, and what is handed on."""
        traced, _, handed_on = self.ask("GET", "/ping", headers=headers).body.decode().partition("|")
        return traced == "1", handed_on


@contextmanager
def running(folder: Path, sampling: TraceSampling) -> Iterator[Nginx]:
    """nginx with this sampling, until the end of a block."""
    with closing(Nginx(folder, sampling)) as nginx:
        nginx.wait_ready()
        yield nginx


@pytest.fixture(params=[0.0, 1.0], ids=["none of the rest", "all of the rest"])
def nginx(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nginx]:
    """nginx that follows parents, and samples none or all of the requests without one."""
    with running(tmp_path, TraceSampling(request.param, "followed")) as started:
        yield started


def test_nginx_follows_the_parent_that_python_reads(nginx: Nginx) -> None:
    """Whatever the client writes; a malformed traceparent does not go on."""
    sampled_otherwise, _ = nginx.decide({})
    for headers in HEADERS:
        parent = parent_in({name.lower(): value for name, value in headers.items()}).get("traceparent")
        own = parent_in({"traceparent": headers.get("traceparent", "")})

        traced, handed_on = nginx.decide(headers)

        assert traced == (parent.split("-")[3][-1] in "13579bdf" if parent else sampled_otherwise), headers
        assert handed_on == (headers["traceparent"] if own else ""), headers


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (TraceSampling(1.0, "ignored"), [True, True, True]),
        (TraceSampling(0.0, "ignored"), [False, False, False]),
        (TraceSampling(0.0, "examined"), [False, True, True]),
        (TraceSampling(0.0, "followed"), [False, True, False]),
    ],
)
def test_each_sampler_s_requests_go_to_python(
    tmp_path: Path, sampling: TraceSampling, expected: list[bool]
) -> None:
    """Without a parent, with a sampled one, and with one that is not: a sampler of ids looks at both itself."""
    with running(tmp_path, sampling) as nginx:
        assert [nginx.decide(headers)[0] for headers in ({}, HEADERS[1], HEADERS[2])] == expected
