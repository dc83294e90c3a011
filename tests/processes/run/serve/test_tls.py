"""TLS at all ports by nginx: versions, client certificates, and files that change under way."""

import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import grpc
import pytest
from botocore.exceptions import ClientError

from support import gates
from support.archives import NEEDS_NGINX, pack
from support.building import ROOT
from support.certificates import Authority
from support.ports import free_port
from support.stack import Stack, ended, serving
from support.transform_command import transform
from tfs_proxy.tools.client import Client, NotAnswered

pytestmark = NEEDS_NGINX
HEALTH, READY = "/grpc.health.v1.Health/Check", "/inference.GRPCInferenceService/ServerReady"
TEXT = {"Content-Type": "text/plain"}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A script that is the model."""
    return pack(tmp_path / "model.tar.gz", {"code/inference.py": gates.MODEL_SCRIPT})


def files(authority: Authority, key: Path, *, asks_clients: bool = False) -> Mapping[str, str]:
    """The settings of TLS with this key and the certificate beside it."""
    paths = {"CERTIFICATE": key.with_suffix(".crt"), "KEY": key}
    paths |= {"CLIENT_CA": authority.path} if asks_clients else {}
    return {f"TFS_PROXY_TLS_{name}": str(path) for name, path in paths.items()}


def call(stack: Stack, method: str, authority: Authority, own: Path | None) -> object:
    """The code of a gRPC call with this client's key, or None if it is answered."""
    pair = () if own is None else (own.read_bytes(), own.with_suffix(".crt").read_bytes())
    credentials = grpc.ssl_channel_credentials(authority.path.read_bytes(), *pair)
    with grpc.secure_channel(stack.grpc, credentials) as channel:
        try:
            channel.unary_unary(method)(b"", timeout=60)
        except grpc.RpcError as error:
            return error.code()
    return None


def test_every_port_has_tls_and_asks_clients_for_certificates(archive: Path, tmp_path: Path) -> None:
    """TLS 1.2 and up at the HTTP port, an extra one and gRPC's; health checks need no certificate."""
    authority, other, extra = Authority(tmp_path), Authority(tmp_path, "other"), free_port()
    client, stranger = authority.sign("client"), other.sign("stranger")
    env = files(authority, authority.sign("server"), asks_clients=True)
    ports = {"TFS_PROXY_GRPC_PORT": str(free_port()), "TFS_PROXY_EXTRA_PORTS": str(extra)}
    stranger_context, old = authority.context(stranger), authority.context()
    with pytest.deprecated_call():
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with serving(str(archive), env={**env, **ports}, tls=authority.context(client)) as stack:
        assert f"ready: https://{stack.host}:{stack.port}" in stack.log
        for port in (stack.port, extra):
            stack.tls = authority.context(client)
            assert stack.ask("POST", "/invocations", b"", TEXT, port=port).body == b"answered"
            stack.tls = authority.context()
            for path in ("/ping", "/live", "/v2/health/ready"):
                assert stack.ask("GET", path, port=port).status == 200
            for method, path, more in (
                ("GET", "/metrics", {}),
                ("POST", HEALTH, {}),
                ("GET", "/ping", {"Upgrade": "a"}),
            ):
                refused = stack.ask(method, path, headers=more, port=port)
                assert (refused.status, "TFS_PROXY_TLS_CLIENT_CA" in refused.json["error"]) == (403, True)
            stack.tls = stranger_context
            assert stack.ask("POST", "/invocations", b"", TEXT, port=port).status == 403
            stack.tls = None
            plain = stack.ask("GET", "/ping", port=port)
            assert (plain.status, "https://" in plain.json["error"]) == (400, True)
            with (
                pytest.raises(ssl.SSLError, match="protocol version"),
                socket.create_connection((stack.host, port)) as connection,
            ):
                old.wrap_socket(connection, server_hostname="localhost")
        for method, own, code in (
            (READY, client, None),
            (READY, None, grpc.StatusCode.UNAUTHENTICATED),
            (READY, stranger, grpc.StatusCode.UNAUTHENTICATED),
            (HEALTH, None, None),
        ):
            assert call(stack, method, authority, own) is code


def test_changed_files_are_taken_up_and_no_request_is_lost(archive: Path, tmp_path: Path) -> None:
    """A link is swapped under requests, as Kubernetes does; what can't be used is logged once and changes nothing."""
    authority, link = Authority(tmp_path), tmp_path / "tls"

    def is_shown(name: str) -> bool:
        return ssl.get_server_certificate((stack.host, stack.port)) == (tmp_path / f"{name}.pem").read_text()

    def swap(name: str) -> None:
        (tmp_path / "new").symlink_to(f"{name}.d")
        (tmp_path / "new").rename(link)

    for name in ("first", "second"):
        (folder := tmp_path / f"{name}.d").mkdir()
        for made in (key := authority.sign(name), key.with_suffix(".crt")):
            made.rename(folder / f"tls{made.suffix}")
        (tmp_path / f"{name}.pem").write_bytes((folder / "tls.crt").read_bytes())
    swap("first")
    statuses, enough = list[int](), threading.Event()

    def ask_on() -> None:
        while not enough.is_set():
            statuses.append(stack.invoke(b"", "text/plain").status)

    with (
        serving(str(archive), env=files(authority, link / "tls.key"), tls=authority.context()) as stack,
        gates.gate(tmp_path / "gate") as gate,
        ThreadPoolExecutor() as pool,
    ):
        held = pool.submit(stack.invoke, gate.mark(), "text/plain")
        gate.wait_for()
        asking = [pool.submit(ask_on) for _ in range(2)]
        try:
            swap("second")
            stack.wait_until(lambda: is_shown("second"), "the new certificate is shown")
        finally:
            enough.set()
        for each in asking:
            each.result()
        assert set(statuses) == {200}
        gate.open()
        assert held.result().body == b"answered"

        (tmp_path / "second.d/tls.crt").write_text("broken")
        stack.wait_for_log("a change can't be used")
        swap("first")
        stack.wait_until(lambda: is_shown("first"), "the first certificate is shown again")
        os.utime(tmp_path / "first.d/tls.crt")
        assert stack.log.count(f"TFS_PROXY_TLS_CERTIFICATE={link}/tls.crt can't be used: it must be") == 1
        assert stack.log.count("nginx takes it up") == 2


@pytest.mark.parametrize("kind", ["one archive", "many models", "pipeline"])
def test_all_kinds_have_it_and_send_boto3_elsewhere(kind: str, archive: Path, tmp_path: Path) -> None:
    """Processes within a pipeline speak without it; tools are told of the CA."""
    authority = Authority(tmp_path)
    key, words = authority.sign("server"), [str(archive)]
    if kind == "many models":
        words = ["--multi-model", str(archive.parent)]
    if kind == "pipeline":
        words = [str(archive), str(archive)]
    with serving(*words, env=files(authority, key), tls=authority.context()) as stack:
        home = {**os.environ, "TFS_PROXY_HOME": str(stack.home)}
        assert subprocess.run([ROOT / "container/healthcheck"], env=home, check=False).returncode == 0
        url = f"https://localhost:{stack.port}"
        with Client(url, ca=str(authority.path)) as client:
            assert client.is_ready()
            assert client.invoke(b"", "text/plain", target_model=archive.name).body == b"answered"
        with Client(url, retries=0) as client, pytest.raises(NotAnswered, match="--ca FILE"):
            client.invoke(b"", "text/plain")
        account = boto3.Session("a", "b", region_name="eu-west-1")
        runtime = account.client("sagemaker-runtime", endpoint_url=url, verify=str(authority.path))
        with pytest.raises(ClientError, match=r"\(404\) .*: this is a container, .*`tfs-proxy endpoint`"):
            runtime.invoke_endpoint(EndpointName="m", Body=b"")
        if kind == "pipeline":
            (tmp_path / "in.txt").write_text("a\nb\n")
            sent = ["--content-type", "text/plain", "--ca", f"{authority.path}"]
            asked = [sys.executable, "-m", "tfs_proxy.cli", "ask", url, f"{tmp_path}/in.txt", *sent]
            assert subprocess.run(asked, capture_output=True, check=True).stdout == b"answered"
            refused = subprocess.run([*asked[:-1], "none.pem"], capture_output=True, check=False)
            assert b"none.pem can't be used" in refused.stderr
            job = f"--endpoint {url} --input {tmp_path}/in.txt --output {tmp_path}/out".split()
            assert transform(*job, *sent).status == 0
        key.with_suffix(".crt").write_bytes(authority.sign("next").with_suffix(".crt").read_bytes())
        (tmp_path / "next.key").rename(key)
        stack.wait_for_log("nginx takes it up")
        assert stack.is_ready()


@pytest.mark.parametrize(
    ("more", "named"), [({}, "can't be read"), ({"TFS_PROXY_NGINX": "false"}, "needs nginx")]
)
def test_a_start_without_usable_files_or_nginx_ends(
    more: dict[str, str], named: str, archive: Path, tmp_path: Path
) -> None:
    """The status is that of a bad setting."""
    status, log = ended(str(archive), env={**files(Authority(tmp_path), tmp_path / "none"), **more})

    assert (status, "TFS_PROXY_TLS_CERTIFICATE" in log, named in log) == (2, True, True), log
