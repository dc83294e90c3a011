"""Run the pods of a rendering as `docker run` has them: requests, probes and a stop, as Kubernetes does them.

    helm template m deploy/chart ... | run_rendered_pod.py --image tfs-proxy:embedded --secret m-keys=FOLDER

Of Jobs, Deployments and ServingRuntimes it takes images, commands, environment, volumes, security contexts,
limits, probes and the end. What only a cluster has (GPUs, roles, scheduling, policies) is left out.
Status 1: a request, a probe or the end is not as it should be, or the log has a warning.
"""

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import requests
import urllib3
import yaml
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from rendered_pod import Pod, docker

from tfs_proxy.wire.protos import PredictRequest
from tfs_proxy.wire.protos.open_inference import ModelInferRequest
from tfs_proxy.wire.protos.tensors import to_bytes

KINDS = ("Job", "Deployment", "ServingRuntime", "ClusterServingRuntime")
GRPC = 8500
INFER = "/inference.GRPCInferenceService/ModelInfer"
PREDICT = "/tensorflow.serving.PredictionService/Predict"
WARNING = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b|Traceback")
HEAD = """| pod | container | probes | answers | while preStop | ended with | log |
|---|---|---|---|---|---|---|"""


def asked(url: str, given: argparse.Namespace, seconds: float, body: str | None = None) -> int:
    """The status of a request: of a probe, which trusts any certificate and shows none, or of a client."""
    try:
        if body is None:
            return requests.get(url, timeout=seconds, verify=False).status_code  # noqa: S501
        headers = {"Content-Type": "application/json", **given.header}
        own = (given.certificate, given.key) if given.certificate else None
        return requests.post(
            url, body, headers=headers, cert=own, verify=given.ca or True, timeout=seconds
        ).status_code
    except requests.RequestException as error:
        if body is not None:
            print(f"{url}: {error}", file=sys.stderr)
        return 0


def called(
    address: str, given: argparse.Namespace, method: str, body: bytes, *, secure: bool
) -> bytes | None:
    """The answer to a gRPC call; None if it is refused."""
    channel = grpc.insecure_channel(address)
    if secure:
        ca, key, certificate = (
            Path(name).read_bytes() if name else None for name in (given.ca, given.key, given.certificate)
        )
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, certificate))
    metadata = [(name.lower(), value) for name, value in given.header.items()]
    with channel, contextlib.suppress(grpc.RpcError):
        return bytes(channel.unary_unary(method)(body, metadata=metadata, timeout=30))
    return None


def probe(pod: Pod, container: Any, name: str, how: Any) -> bool:
    """What one attempt of a probe says."""
    seconds = how.get("timeoutSeconds", 1)
    if "exec" in how:
        words = ("exec", name, "timeout", str(seconds), *how["exec"]["command"])
        return subprocess.run(["docker", *words], capture_output=True, check=False).returncode == 0  # noqa: S607
    if "grpc" in how:
        body = HealthCheckRequest(service=how["grpc"].get("service", "")).SerializeToString()
        address = pod.address(container, how["grpc"]["port"])
        said = called(address, pod.given, "/grpc.health.v1.Health/Check", body, secure=False)
        return said is not None and HealthCheckResponse.FromString(said).status == HealthCheckResponse.SERVING
    http = how["httpGet"]
    url = f"{http.get('scheme', 'HTTP').lower()}://{pod.address(container, http['port'])}{http['path']}"
    return asked(url, pod.given, seconds) in range(200, 400)


def probes(pod: Pod, container: Any, name: str) -> Iterator[str]:
    """Ask each probe as the kubelet does, the first one until it says yes; what they say."""
    for kind in ("startup", "readiness", "liveness"):
        if (how := container.get(f"{kind}Probe")) is None:
            continue
        began, ready = time.monotonic(), probe(pod, container, name, how)
        for _ in range(how.get("failureThreshold", 3) - 1 if kind == "startup" else 0):
            if ready or docker("inspect", "--format", "{{.State.Running}}", name) != "true":
                break
            time.sleep(how.get("periodSeconds", 10))
            ready = probe(pod, container, name, how)
        yield f"{kind} {'yes' if ready else 'NO'}" + (
            f" after {time.monotonic() - began:.0f} s" * (kind == "startup")
        )


def answers(pod: Pod, container: Any) -> Iterator[str]:
    """Ask each port that serves for a prediction; what it answers."""
    given, variables = pod.given, {each["name"] for each in container.get("env", ())}
    secure = "TFS_PROXY_TLS_CERTIFICATE" in variables
    for port in (each["containerPort"] for each in container.get("ports", ())):
        address = pod.address(container, port)
        if port == GRPC:
            infer = ModelInferRequest(model_name=given.name)
            infer.inputs.add(name="x", datatype="FP32", shape=[1]).contents.fp32_contents.append(1.0)
            predict = PredictRequest()
            predict.model_spec.name = given.name
            predict.inputs["x"].ParseFromString(to_bytes(np.ones(1, np.float32)))
            said = [
                called(address, given, method, message.SerializeToString(), secure=secure)
                for method, message in ((INFER, infer), (PREDICT, predict))
            ]
            yield "gRPC OK" if all(said) else "gRPC REFUSED"
        else:
            url = f"http{'s' if secure else ''}://{address}{given.path}"
            yield f"HTTP {asked(url, given, 60, given.body)}"


def ended(pod: Pod, container: Any, name: str) -> tuple[str, str]:
    """Run preStop, while requests still come, then SIGTERM; their answers, exit status and seconds."""
    began, grace = time.monotonic(), pod.spec.get("terminationGracePeriodSeconds", 30)
    hook = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
    got = ""
    if hook is not None:
        with subprocess.Popen(["docker", "exec", name, *hook], stderr=subprocess.DEVNULL):  # noqa: S607
            got = ", ".join(answers(pod, container))
    docker("stop", "--time", f"{max(1, grace - (time.monotonic() - began)):.0f}", name)
    return got, f"{docker('wait', name)} after {time.monotonic() - began:.0f} s"


def log_of(name: str) -> str:
    """What is wrong in a container's log: its lines with a warning, or worse."""
    lines = docker("logs", name).splitlines()
    bad = [line for line in lines if WARNING.search(line)]
    return "<br>".join(bad) or f"clean, {len(lines)} lines"


def results(pod: Pod) -> Iterator[list[str]]:
    """Run a pod to its end, the init containers first; a row for each container."""
    serving = []
    for container in [*pod.spec.get("initContainers", ()), *pod.spec["containers"]]:
        name = pod.start(container)
        if pod.once or container not in pod.spec["containers"]:
            yield [container["name"], "", "", "", docker("wait", name), log_of(name)]
        else:
            said = ", ".join(probes(pod, container, name))
            serving.append((container, name, said, ", ".join(answers(pod, container))))
    for container, name, said, got in serving:
        yield [container["name"], said, got, *ended(pod, container, name), log_of(name)]


def is_good(row: list[str]) -> bool:
    """Probes say yes, each request is answered, the end has status 0, and the log has no warning."""
    _, said, got, last, status, log = row
    right = all(each in {"", "HTTP 200", "gRPC OK"} for each in f"{got}, {last}".split(", "))
    return right and "NO" not in said and status.split()[0] == "0" and log.startswith("clean")


def pairs(words: list[str] | None) -> dict[str, str]:
    """NAME=VALUE, as often as it was given."""
    return dict(word.split("=", 1) for word in words or ())


def arguments() -> argparse.Namespace:
    """What the command line gives in place of a cluster."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rendering", nargs="?", default="-", help="a file of YAML; standard input without it")
    parser.add_argument("--image", help="in place of the images that it names")
    parser.add_argument(
        "--name", default="half_plus_two", help="KServe's {{.Name}}, and the model asked by gRPC"
    )
    parser.add_argument(
        "--user", type=int, default=0, help="of containers that name none, as OpenShift does it"
    )
    for name, text in (
        ("volume", "NAME=FOLDER: a claim's or an image's files; a claim without it is an empty folder"),
        ("secret", "NAME=FOLDER: a file for each key"),
        ("mount", "PATH=FOLDER: what a webhook adds, such as KServe's /mnt/models"),
        ("env", "NAME=VALUE: a variable besides"),
        ("header", "NAME=VALUE: of the request"),
    ):
        parser.add_argument(f"--{name}", action="append", help=text)
    parser.add_argument("--path", default="/invocations", help="where the request goes")
    parser.add_argument("--body", default='{"instances": [1.0, 2.0, 5.0]}', help="what it says")
    parser.add_argument("--ca", help="file with the CA that signed the server's certificate")
    parser.add_argument("--certificate", help="file with the client's certificate")
    parser.add_argument("--key", help="file with its key")
    given = parser.parse_args()
    for name in ("volume", "secret", "mount", "env", "header"):
        setattr(given, name, pairs(getattr(given, name)))
    return given


def main() -> int:
    """Print a row for each container; the exit status."""
    urllib3.disable_warnings()  # of the probes
    given, good = arguments(), True
    text = sys.stdin.read() if given.rendering == "-" else Path(given.rendering).read_text()
    documents = [each for each in yaml.safe_load_all(text) if each and each["kind"] in KINDS]
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        for document in sorted(documents, key=lambda each: KINDS.index(each["kind"])):
            pod = Pod(document, given, Path(folder))
            with pod.held():
                for row in results(pod):
                    print(f"| {pod.title} | {' | '.join(row)} |", flush=True)
                    good = good and is_good(row)
            for each in sorted(pod.left_out):
                print(f"{pod.title}: left out {each}", file=sys.stderr)
    return 0 if documents and good else 1


if __name__ == "__main__":
    sys.exit(main())
