"""docker-compose.yml and the Kubernetes manifests, held to their published schemas and to the image."""

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

import tfs_proxy
from support import kserve_schema
from tfs_proxy.observe import catalogue

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
RUNTIMES = {
    "../kserve/servingruntime.yaml": ["v1", "v2"],
    "../kserve/servingruntime-grpc.yaml": ["grpc-v1", "grpc-v2"],
}
EXAMPLES = sorted((ROOT / "deploy" / "kserve" / "examples").iterdir())
NATIVE = ("deployment.yaml", "service.yaml", "autoscaler.yaml", "disruptionbudget.yaml")
COMPOSE = ROOT / "docker-compose.yml"
(EXPOSED,) = re.findall(r"^EXPOSE (\d+) ", (ROOT / "Dockerfile.cpu").read_text(), re.MULTILINE)


def read(path: Path) -> Any:
    """One document."""
    return yaml.safe_load(path.read_text())


def pod(name: str) -> Any:
    """The spec of a manifest's pods."""
    spec = read(KUBERNETES / name)["spec"]
    return spec if "containers" in spec else spec["template"]["spec"]


def container(name: str) -> Any:
    """The only container of a manifest."""
    (only,) = pod(name)["containers"]
    return only


@pytest.mark.parametrize("path", sorted(KUBERNETES.iterdir()), ids=lambda path: path.stem)
def test_manifests_fit_the_schemas_of_kubernetes(path: Path) -> None:
    """Strictly: a field that Kubernetes does not know is an error. Judges have the schemas of others."""
    for document in yaml.safe_load_all(path.read_text()):
        group = document.get("apiVersion", "of.others/").rpartition("/")[0]
        if "." not in group or (group.endswith(".k8s.io") and not group.startswith("gateway.")):
            kubernetes_validate.validate(document, "1.30", strict=True)


@pytest.mark.parametrize("name", RUNTIMES)
def test_serving_runtimes_fit_kserves_schema_and_their_pods_that_of_kubernetes(name: str) -> None:
    """KServe's own fields as its SDK has them, containers and volumes as those of a pod."""
    runtime = read(KUBERNETES / name)
    for kind in ("ServingRuntime", "ClusterServingRuntime"):
        jsonschema.validate({**runtime, "kind": kind}, kserve_schema.schema(f"V1alpha1{kind}"))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "checked"},
        "spec": {key: runtime["spec"][key] for key in ("containers", "volumes")},
    }
    kubernetes_validate.validate(pod, "1.30", strict=True)

    assert (runtime["apiVersion"], runtime["kind"]) == ("serving.kserve.io/v1alpha1", "ServingRuntime")
    assert runtime["spec"]["containers"][0]["name"] == "kserve-container"
    assert runtime["spec"]["containers"][0]["args"] == ["serve", "/mnt/models"]
    assert runtime["spec"]["protocolVersions"] == RUNTIMES[name]
    assert all(each["autoSelect"] for each in runtime["spec"]["supportedModelFormats"])
    assert {"name": "TFS_PROXY_MODEL_NAME", "value": "{{.Name}}"} in runtime["spec"]["containers"][0]["env"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_fit_kserves_schema_and_get_a_runtime_by_format_and_protocol(path: Path) -> None:
    """What stands beside an InferenceService is Kubernetes' own; a GPU's image is that of this version."""
    *others, service = yaml.safe_load_all(path.read_text())
    jsonschema.validate(service, kserve_schema.schema("V1beta1InferenceService"))
    for other in others:
        kubernetes_validate.validate(other, "1.30", strict=True)
    model, tag = service["spec"]["predictor"]["model"], f"v{tfs_proxy.__version__}-gpu"

    assert "runtime" not in model
    assert model["modelFormat"] == {"name": "tensorflow"}
    assert any(model.get("protocolVersion", "v1") in protocols for protocols in RUNTIMES.values())
    assert model.get("runtimeVersion", tag) == tag


def test_serving_runtimes_differ_in_protocol_port_and_probes_alone() -> None:
    """Each has one port, as Knative asks, and probes that end within Knative's ten minutes."""
    http, grpc = (read(KUBERNETES / name) for name in RUNTIMES)
    (port,), (h2c,) = (each["spec"]["containers"][0].pop("ports") for each in (http, grpc))
    assert [(each["name"], each["containerPort"]) for each in (port, h2c)] == [("http1", 8080), ("h2c", 8500)]
    for each in (http, grpc):
        served = each["spec"]["containers"][0]
        start, _ = (served.pop(f"{kind}Probe") for kind in ("startup", "readiness"))
        assert start["periodSeconds"] * start["failureThreshold"] == 480
    grpc["spec"]["containers"][0]["env"].remove({"name": "TFS_PROXY_GRPC_PORT", "value": "8500"})
    assert grpc["metadata"].pop("name") == http["metadata"].pop("name") + "-grpc"
    assert grpc["spec"].pop("protocolVersions") != http["spec"].pop("protocolVersions")
    assert grpc == http


def test_pods_may_read_models_by_a_role_or_a_secret_that_the_guide_makes() -> None:
    """The service account is one of the files that the guide applies."""
    account, guide = read(KUBERNETES / "serviceaccount.yaml"), ROOT / "docs" / "how-to" / "kubernetes.md"
    (secret,) = container("deployment.yaml")["envFrom"]

    assert pod("deployment.yaml")["serviceAccountName"] == account["metadata"]["name"]
    assert f"create secret generic {secret['secretRef']['name']}" in guide.read_text()
    assert secret["secretRef"]["optional"] is True
    applied = re.findall(r"deploy/kubernetes/([\w-]+\.yaml)", guide.read_text())
    assert [name for name in applied if not (KUBERNETES / name).exists()] == []


def test_the_compose_file_fits_the_compose_specification_and_builds_what_is_there() -> None:
    """The Dockerfile that it names exists, and builds its last stage."""
    build = read(COMPOSE)["services"]["tfs-proxy"]["build"]
    program = f"{sysconfig.get_path('scripts')}/check-jsonschema"

    subprocess.run([program, "--builtin-schema", "vendor.compose-spec", COMPOSE], check=True)
    assert (ROOT / build.pop("dockerfile")).is_file()
    assert build == {"context": "."}


def test_the_compose_file_is_one_for_docker_compose_1_29_too() -> None:
    """Debian 12 has that: of a bind mount's options it knows one, and it says so itself if it is here."""
    (volume,) = read(COMPOSE)["services"]["tfs-proxy"]["volumes"]
    assert set(volume) <= {"type", "source", "target", "read_only", "bind"}
    assert set(volume.get("bind", {})) <= {"propagation"}

    program = shutil.which("docker-compose")
    if program is not None:
        subprocess.run([program, "--file", COMPOSE, "config", "--quiet"], check=True)


@pytest.mark.parametrize("name", ["deployment.yaml", *RUNTIMES])
def test_containers_run_without_rights_on_a_read_only_root(name: str) -> None:
    """As the container tests do it."""
    rights = container(name)["securityContext"]

    profile = rights.get("seccompProfile") or pod(name)["securityContext"]["seccompProfile"]
    assert profile == {"type": "RuntimeDefault"}
    assert rights["readOnlyRootFilesystem"] is True
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert {"name": "work", "mountPath": "/tmp"} in container(name)["volumeMounts"]


@pytest.mark.parametrize("name", ["deployment.yaml", *RUNTIMES])
def test_containers_have_limits_that_workers_are_counted_by(name: str) -> None:
    """CPU, memory, and ephemeral storage with room for all of /tmp."""
    resources = container(name)["resources"]
    (work,) = pod(name)["volumes"]

    assert set(resources["limits"]) == set(resources["requests"]) == {"cpu", "memory", "ephemeral-storage"}
    room = int(resources["limits"]["ephemeral-storage"].removesuffix("Gi"))
    assert int(work["emptyDir"]["sizeLimit"].removesuffix("Gi")) < room


def test_pods_get_no_token_for_the_api_server() -> None:
    """No script needs one, and none can leak it."""
    assert pod("deployment.yaml")["automountServiceAccountToken"] is False
    assert pod("deployment.yaml")["enableServiceLinks"] is False


def test_probes_ask_ping_and_live_where_the_image_listens() -> None:
    """Start-up may take minutes, readiness is quick to leave, liveness is slow to kill and asks another door."""
    served = container("deployment.yaml")
    probes = [served[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]

    assert served["ports"][0]["containerPort"] == int(EXPOSED)
    assert [probe["httpGet"]["path"] for probe in probes] == ["/ping", "/ping", "/live"]
    assert [probe["periodSeconds"] * probe["failureThreshold"] for probe in probes] == [2100, 4, 120]


def test_the_grace_period_covers_pre_stop_and_drain() -> None:
    """Else SIGKILL ends requests in flight."""
    spec = pod("deployment.yaml")
    pause = int(spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])

    assert spec["terminationGracePeriodSeconds"] >= pause + 25 + 5


def test_the_parts_find_each_other() -> None:
    """The Service, the budget and the spread select the Deployment's pods, the autoscaler scales it."""
    deployment, service, scaler, budget = (read(KUBERNETES / name) for name in NATIVE)
    spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    (measured,) = (metric["containerResource"] for metric in scaler["spec"]["metrics"])

    assert service["spec"]["selector"].items() <= labels.items()
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert all(constraint["labelSelector"]["matchLabels"].items() <= labels.items() for constraint in spread)
    assert {constraint["topologyKey"] for constraint in spread} == {
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
    }
    assert budget["spec"]["maxUnavailable"] < scaler["spec"]["minReplicas"]
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert measured["container"] == container("deployment.yaml")["name"]
    assert measured["name"] in container("deployment.yaml")["resources"]["requests"]
    assert service["spec"]["ports"][0]["targetPort"] == container("deployment.yaml")["ports"][0]["name"]


def test_prometheus_and_kserve_scrape_the_port_that_serves() -> None:
    """By annotations, which are strings."""
    deployment = read(KUBERNETES / "deployment.yaml")["spec"]["template"]
    runtime = read(KUBERNETES / "../kserve/servingruntime.yaml")["spec"]

    assert deployment["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": EXPOSED,
        "prometheus.io/path": "/metrics",
    }
    assert runtime["annotations"] == {
        "prometheus.kserve.io/port": EXPOSED,
        "prometheus.kserve.io/path": "/metrics",
    }


def test_the_chart_is_of_this_version() -> None:
    """A release's chart takes the release's images."""
    about = read(ROOT / "deploy" / "chart" / "Chart.yaml")
    assert about["version"] == about["appVersion"] == tfs_proxy.__version__


def test_the_autoscaler_in_flight_follows_the_adapters_metric() -> None:
    (rule,) = read(KUBERNETES / "prometheus-adapter.yaml")["rules"]["custom"]
    metric = read(KUBERNETES / "autoscaler-in-flight.yaml")["spec"]["metrics"][-1]

    assert metric["type"] == "Pods"
    assert metric["pods"]["metric"]["name"] == rule["name"]["as"] == catalogue.REQUESTS_IN_FLIGHT.name
    assert rule["seriesQuery"].startswith(catalogue.REQUESTS_IN_FLIGHT.name + "{")
