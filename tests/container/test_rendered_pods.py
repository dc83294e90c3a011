"""Pods of the chart's renderings and of KServe's runtimes, run as they are written by scripts/run_rendered_pod.py."""

import functools
import http.server
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.certificates import Authority
from support.containers import EMBEDDED
from support.http_servers import listening
from support.judges import ROOT, judge

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="Secrets and claims get the owners that pods have")
KEY = "k" * 32


def run(rendering: str, *words: str | Path) -> tuple[int, list[list[str]]]:
    """The exit status for a rendering, and the cells of each container's row."""
    program: list[str | Path] = [
        sys.executable,
        ROOT / "scripts" / "run_rendered_pod.py",
        "--image",
        EMBEDDED,
    ]
    done = subprocess.run([*program, *words], input=rendering, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]


def rendered(*values: str) -> str:
    """The chart's rendering of a release m."""
    return judge("chart").run("helm", "template", "m", ROOT / "deploy" / "chart", "--set", ",".join(values))


@pytest.fixture
def address(plain: Path) -> Iterator[str]:
    """Where containers find the archive."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=plain.parent)
    with listening(handler, host="") as server:
        yield f"http://host.docker.internal:{server.server_port}/{plain.name}"


def test_a_job_fills_the_cache_and_a_pod_serves_it_by_keys_and_tls(address: str, tmp_path: Path) -> None:
    """The Job ends, the pod waits for its folder, all probes say yes over HTTPS, and a stop ends with 0."""
    authority = Authority(tmp_path)
    key, mine = authority.sign("server"), authority.sign("client")
    secrets = {
        "certificate": {"tls.crt": key.with_suffix(".crt").read_bytes(), "tls.key": key.read_bytes()},
        "callers": {"keys": f"shop {KEY}\n".encode()},
        "ca": {"ca.crt": authority.path.read_bytes()},
    }
    words: list[str | Path] = [
        "--ca",
        authority.path,
        "--certificate",
        mine.with_suffix(".crt"),
        "--key",
        mine,
    ]
    for name, files in secrets.items():
        (tmp_path / name).mkdir()
        words += ["--secret", f"{name}={tmp_path / name}"]
        for file, content in files.items():
            (tmp_path / name / file).write_bytes(content)
    values = ("tls.secretName=certificate", "tls.clientCa.secretName=ca", "keys.api.secretName=callers")
    rendering = rendered(f"model.uri={address}", "model.cache.type=volume", "preStopSeconds=1", *values)

    status, rows = run(rendering, *words, "--header", f"X-Api-Key={KEY}")

    assert [row[1] for row in rows] == ["fetch-model", "wait-for-model", "tfs-proxy"], rows
    assert [row[5].split()[0] for row in rows] == ["0", "0", "0"], rows
    assert "readiness yes, liveness yes" in rows[-1][2]
    assert rows[-1][3:5] == ["HTTP 200, gRPC OK", "HTTP 200, gRPC OK"]
    assert status == 0, rows


def test_kserves_runtime_serves_over_grpc(saved_models: Path) -> None:
    """As the storage initializer leaves it: a folder at /mnt/models, and the service's name for the model."""
    rendering = (ROOT / "deploy" / "kserve" / "servingruntime-grpc.yaml").read_text()

    status, rows = run(rendering, "--mount", f"/mnt/models={saved_models / 'half_plus_two'}")

    assert (rows[0][3], status) == ("gRPC OK", 0), rows


def test_a_pod_that_can_not_serve_is_found(tmp_path: Path) -> None:
    """A claim without a model: its row has what the log says, and the status is 1."""
    status, rows = run(
        rendered("model.volume.claimName=models", "preStopSeconds=0"), "--volume", f"models={tmp_path}"
    )

    assert "startup NO" in rows[0][2]
    assert "/opt/ml/model" in rows[0][-1]
    assert status == 1
