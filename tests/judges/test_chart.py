"""The Helm chart: rendered by helm for each file of values/, and each object judged by the schema of its kind."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from support.judges import CLIENTS, ROOT, judge

CHART = ROOT / "deploy" / "chart"
VALUES = sorted((CLIENTS.parent / "values").glob("*.yaml"))
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in (CLIENTS.parent / "schemas").glob("*.json")}
_, _newest = kubernetes_validate.latest_version().split(".")[:2]
KUBERNETES = [f"1.{int(_newest) - back}" for back in range(3)]

WRONG = yaml.safe_load((CLIENTS.parent / "wrong_values.yaml").read_text())

OPEN = """
model.cache.resources.requests model.cache.resources.limits settings autoscaling.keda.authenticationRef
resources.requests resources.limits monitoring.podMonitor.authorization monitoring.podMonitor.tlsConfig affinity
dnsConfig podSecurityContext podSecurityContext.seccompProfile securityContext securityContext.capabilities
"""


def render(*words: str | Path) -> str:
    """What `helm template` prints of a release m."""
    kubernetes = f"--kube-version={KUBERNETES[0]}"
    return judge("chart").run("helm", "template", "m", CHART, "--namespace=models", kubernetes, *words)


@pytest.fixture(scope="module")
def rendered() -> dict[str, list[Any]]:
    """The objects of each file of values."""
    texts = {path.stem: render("--values", path) for path in VALUES}
    return {name: [each for each in yaml.safe_load_all(text) if each] for name, text in texts.items()}


def leaves(values: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each value by its path; a mapping without entries is one, too."""
    if isinstance(values, dict) and values:
        for name, value in values.items():
            yield from leaves(value, *path, name)
    else:
        yield path, values


def test_each_value_is_tried_with_another_one_than_its_default() -> None:
    """A switch that no file turns is judged by nobody; the rights of containers are as they have to be."""
    defaults = dict(leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
    given = [leaf for path in VALUES for leaf in leaves(yaml.safe_load(path.read_text()))]
    tried = {
        name
        for name, default in defaults.items()
        for place, value in given
        if place[: len(name)] == name and (place != name or value != default)
    }
    assert {name for name in set(defaults) - tried if "ecurityContext" not in name[0]} == set()


@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem)
def test_helm_finds_nothing_to_say(path: Path) -> None:
    """`helm lint --strict`: no error, and no warning."""
    said = judge("chart").run("helm", "lint", "--strict", CHART, "--values", path)
    assert re.findall(r"\[(?!INFO).*", said) == []


@pytest.mark.parametrize("name", [path.stem for path in VALUES])
def test_each_object_is_one_of_its_kind(rendered: dict[str, list[Any]], name: str) -> None:
    """Kubernetes' own by three versions, the others by their published definitions; unknown fields are errors."""
    for each in rendered[name]:
        if each["kind"] in SCHEMAS:
            jsonschema.validate(each, SCHEMAS[each["kind"]])
            each = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": each["metadata"]}  # noqa: PLW2901
        for version in KUBERNETES:
            kubernetes_validate.validate(each, version, strict=True)
    names = [(each["kind"], each["metadata"]["name"]) for each in rendered[name]]
    assert len(set(names)) == len(names)


def test_all_kinds_of_custom_objects_are_rendered(rendered: dict[str, list[Any]]) -> None:
    """A schema that no object is judged by is not needed."""
    assert set(SCHEMAS) <= {each["kind"] for objects in rendered.values() for each in objects}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_field_that_a_custom_object_has_not_is_found(rendered: dict[str, list[Any]], kind: str) -> None:
    """At any depth: KEDA, the Gateway API and Prometheus' operator would drop it without a word."""
    found = next(each for objects in rendered.values() for each in objects if each["kind"] == kind)
    wrong = {**found, "spec": {**found["spec"], "wrong": 1}}
    with pytest.raises(jsonschema.ValidationError, match="wrong"):
        jsonschema.validate(wrong, SCHEMAS[kind])


@pytest.mark.parametrize(("said", "words"), WRONG.items(), ids=[text.rpartition(",")[2] for text in WRONG])
def test_a_wrong_value_is_refused_with_a_sentence_that_names_it(said: str, words: str) -> None:
    done = judge("chart").attempt("helm", "template", "m", CHART, "--set", said)
    assert done.returncode != 0
    assert re.search(words, " ".join(done.stderr.split())), done.stderr


def test_the_manifests_are_renderings_of_the_chart(tmp_path: Path) -> None:
    """`make manifests` writes them; a change by hand would be lost at its next run."""
    judge("chart")
    subprocess.run([ROOT / "scripts" / "render-manifests", tmp_path], check=True)
    files = {path.name: path.read_text() for path in (ROOT / "deploy" / "kubernetes").iterdir()}

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        name: text for name, text in files.items() if text.startswith("# Rendered by `make manifests`")
    }


@pytest.mark.parametrize(
    ("said", "pattern"),
    {
        "strategy.type=Recreate": r"strategy:\s+type: Recreate\s+template:",
        "gpu.count=1,model.cache.type=volume": r"kind: Job.*key: nvidia.com/gpu.*restartPolicy: Never",
        "settings=null,tolerations=null,podLabels=null,model.cache.type=volume,model.cache.version=7": "kind: Job",
        "model.cache.type=volume,model.cache.version=86": r'subPath: "\d{12}"',
        "probes.liveness=null": r"readinessProbe:((?!livenessProbe|null).)*lifecycle:",
        f"fullnameOverride={'n' * 46},autoscaling.by=keda": r'pod=~"n{46}-\[0-9a-z\]\+-\[0-9a-z\]\+"',
        "keys.api.secretName=k": r"\A((?!prometheus\.io/scrape).)*\Z",
        "model.cache.type=emptyDir": "ephemeral-storage: 11264Mi",
        "settings.HTTPS_PROXY=http://u:p@proxy:3128,extraEnv[0].name=AWS_ENDPOINT_URL_S3,"
        "extraEnv[0].value=https://store:9000": r"- port: 443\s+- port: 3128\s+- port: 9000",
        "settings.BYTES=536870912,settings.ON=true": r'BYTES"\s+value: "536870912".*"ON"\s+value: "true"',
    }.items(),
)
def test_what_the_api_server_or_a_scheduler_alone_would_refuse_is_right(said: str, pattern: str) -> None:
    assert re.search(pattern, render("--set", f"model.uri=s3://bucket/m,{said}"), re.DOTALL)


def test_what_the_network_policy_cannot_see_is_named_after_an_installation() -> None:
    """A proxy's address in a Secret opens no port by itself."""
    words = [
        "model.uri=s3://bucket/m",
        "model.credentials.secretName=store",
        "envFrom[0].configMapRef.name=stage",
    ]
    said = judge("chart").run("helm", "install", "m", CHART, "--dry-run=client", "--set", ",".join(words))

    assert "the Secret store, the ConfigMap stage are not seen here" in said


def test_a_misspelt_name_is_refused_wherever_it_stands() -> None:
    """All mappings of values.yaml but those whose names are the user's, or Kubernetes' own, are closed."""
    closed = jsonschema.Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert [error.message for error in closed.iter_errors(values)] == []

    def mappings(place: Any, *path: str) -> Iterator[str]:
        if isinstance(place, dict):
            place["misspelt"] = 1
            if closed.is_valid(values):
                yield ".".join(path)
            del place["misspelt"]
            for name in list(place):
                yield from mappings(place[name], *path, name)

    assert list(mappings(values)) == OPEN.split()


def test_what_checkov_finds_is_explained_at_the_values(
    rendered: dict[str, list[Any]], tmp_path: Path
) -> None:
    """Each check that fails for some values has a reason at the value that decides it, and no other has."""
    for name, objects in rendered.items():
        placed = [{**each, "metadata": {**each["metadata"], "namespace": name}} for each in objects]
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump_all(placed))
    words = ["--framework", "kubernetes", "--quiet", "--compact", "--skip-download", "--soft-fail"]
    report = json.loads(judge("chart").run("checkov", *words, "-o", "json", "-d", tmp_path))
    failed = {check["check_id"] for check in report["results"]["failed_checks"]}
    explained = re.findall(r"# checkov (CKV2?_K8S_\d+): \w+", (CHART / "values.yaml").read_text())

    assert report["summary"]["resource_count"] > len(VALUES)
    assert report["summary"]["parsing_errors"] == 0
    assert failed == set(explained)
