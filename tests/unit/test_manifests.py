"""docker-compose.yml and the Kubernetes manifests, held to their schemas and to the image."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
NATIVE = ("deployment.yaml", "service.yaml", "autoscaler.yaml")
TEXT, FLAG, TEXTS = {"type": "string"}, {"type": "boolean"}, {"type": "array", "items": {"type": "string"}}


def strict(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """An object with these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


SERVING_RUNTIME = strict(
    {
        "apiVersion": {"const": "serving.kserve.io/v1alpha1"},
        "kind": {"const": "ServingRuntime"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": strict(
            {
                "supportedModelFormats": {
                    "type": "array",
                    "items": strict(
                        {"name": TEXT, "version": TEXT, "autoSelect": FLAG, "priority": {"type": "integer"}},
                        "name",
                    ),
                },
                "multiModel": FLAG,
                "disabled": FLAG,
                "protocolVersions": TEXTS,
                "containers": {"type": "array", "minItems": 1},
                "volumes": {"type": "array"},
            },
            "containers",
        ),
    },
    "apiVersion",
    "kind",
    "metadata",
    "spec",
)
"""The fields of KServe's ServingRuntimeSpec that are used here, as its API reference gives them."""

SERVICE = strict(
    {
        "image": TEXT,
        "build": strict({"context": TEXT, "dockerfile": TEXT, "target": TEXT}),
        "command": TEXTS,
        "ports": {"type": "array", "items": {"type": "string", "pattern": r"^\d+:\d+$"}},
        "volumes": {"type": "array", "items": {"type": "string", "pattern": r"^.+:/[^:]+(:ro|:rw)?$"}},
        "user": TEXT,
        "read_only": FLAG,
        "tmpfs": TEXTS,
        "cap_drop": TEXTS,
        "security_opt": TEXTS,
        "stop_grace_period": {"type": "string", "pattern": r"^(\d+[hms])+$"},
    }
)
COMPOSE = strict({"services": {"type": "object", "additionalProperties": SERVICE}}, "services")
"""The keys of the Compose specification that are used here, with their types."""


def read(path: Path) -> Any:
    """One document."""
    return yaml.safe_load(path.read_text())


def container(name: str) -> Any:
    """The only container of a manifest."""
    spec = read(KUBERNETES / name)["spec"]
    (only,) = spec.get("containers") or spec["template"]["spec"]["containers"]
    return only


@pytest.mark.parametrize("name", NATIVE)
def test_manifests_fit_the_schemas_of_kubernetes(name: str) -> None:
    """Strictly: a field that Kubernetes does not know is an error."""
    kubernetes_validate.validate(read(KUBERNETES / name), "1.30", strict=True)


def test_the_serving_runtime_fits_kserves_schema_and_its_pod_that_of_kubernetes() -> None:
    """KServe's own fields by name, and containers and volumes as those of a pod."""
    runtime = read(KUBERNETES / "servingruntime.yaml")
    jsonschema.validate(runtime, SERVING_RUNTIME)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "checked"},
        "spec": {key: runtime["spec"][key] for key in ("containers", "volumes")},
    }
    kubernetes_validate.validate(pod, "1.30", strict=True)

    assert runtime["spec"]["containers"][0]["name"] == "kserve-container"
    assert runtime["spec"]["containers"][0]["args"] == ["serve", "/mnt/models"]


def test_the_compose_file_fits_its_schema_and_builds_what_is_there() -> None:
    """The Dockerfile and the target that it names exist."""
    compose = read(ROOT / "docker-compose.yml")
    jsonschema.validate(compose, COMPOSE)
    build = compose["services"]["tfs-proxy"]["build"]

    assert f" AS {build['target']}\n" in (ROOT / build["dockerfile"]).read_text()


@pytest.mark.parametrize("name", ["deployment.yaml", "servingruntime.yaml"])
def test_containers_run_without_rights_on_a_read_only_root(name: str) -> None:
    """As the container tests do it."""
    rights = container(name)["securityContext"]

    assert rights["readOnlyRootFilesystem"] is True
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert {"name": "work", "mountPath": "/tmp"} in container(name)["volumeMounts"]


def test_probes_ask_ping_where_the_image_listens() -> None:
    """Start-up may take minutes, readiness is quick to leave, liveness is slow to kill."""
    served = container("deployment.yaml")
    (exposed,) = re.findall(r"^EXPOSE (\d+) ", (ROOT / "Dockerfile.cpu").read_text(), re.MULTILINE)
    probes = [served[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]

    assert served["ports"][0]["containerPort"] == int(exposed)
    assert {probe["httpGet"]["path"] for probe in probes} == {"/ping"}
    assert [probe["periodSeconds"] * probe["failureThreshold"] for probe in probes] == [300, 4, 120]


def test_the_grace_period_covers_pre_stop_and_drain() -> None:
    """Else SIGKILL ends requests in flight."""
    spec = read(KUBERNETES / "deployment.yaml")["spec"]["template"]["spec"]
    pause = int(spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])

    assert spec["terminationGracePeriodSeconds"] >= pause + 25 + 5


def test_the_parts_find_each_other() -> None:
    """The Service selects the Deployment's pods, the autoscaler scales it."""
    deployment, service, scaler = (read(KUBERNETES / name) for name in NATIVE)
    labels = deployment["spec"]["template"]["metadata"]["labels"]

    assert service["spec"]["selector"].items() <= labels.items()
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert service["spec"]["ports"][0]["targetPort"] == container("deployment.yaml")["ports"][0]["name"]
