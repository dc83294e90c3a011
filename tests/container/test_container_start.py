"""The ways in which Docker and SageMaker start the image, and what it says if it can't start."""

import json
from pathlib import Path

import pytest

from support.archives import pack
from support.containers import EMBEDDED, container, docker, mounted
from support.judges import judge

ASKED, ANSWERED = '{"instances": [1.0, 2.0]}', {"predictions": [2.5, 3.0]}
LIBRARIES = "numpy pandas sklearn cloudpickle boto3 requests PIL"


def test_a_script_finds_its_files_where_sagemaker_unpacks_them(saved_models: Path, tmp_path: Path) -> None:
    """The archive alone is mounted at /opt/ml/model, and scripts open /opt/ml/model/NAME."""
    script = "def handler(data, context): return open('/opt/ml/model/words.txt').read(), 'text/plain'"
    files = {"code/inference.py": script, "words.txt": "found"}
    archive = pack(tmp_path / "model.tar.gz", files, {"half_plus_two": saved_models / "half_plus_two"})
    with container(*mounted(archive)) as running:
        assert running.invoke(ASKED).body == b"found"


@pytest.mark.parametrize(
    "command", [("serve", "--port", "9000"), ("sh", "-c", "tfs-proxy serve --port=9000; true")]
)
def test_the_health_check_asks_the_port_of_the_command(plain: Path, command: tuple[str, ...]) -> None:
    """Docker calls a container healthy that `serve --port` moved, whichever process has PID 1."""
    options = "--health-interval 1s --health-start-period 0s --health-retries 100".split()
    with container(*mounted(plain), *options, command=command, inside=9000) as running:
        running.wait_until(lambda: running.state["Health"]["Status"] == "healthy", "it is healthy")
        said = running.run("sh", "-c", "/usr/local/lib/tfs-proxy/healthcheck /v1/models/none; echo $?")
        assert said == "1"


def test_a_read_only_root_and_a_user_without_rights_are_enough(scripted: Path) -> None:
    options = (
        *("--read-only", "--tmpfs", "/tmp", "--user", "12345:12345"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    )
    with container(*options, *mounted(scripted)) as running:
        assert running.invoke(ASKED).json == ANSWERED
        assert running.run("id", "-u") == "12345"


def test_everything_written_lies_below_the_home(plain: Path) -> None:
    with container(*mounted(plain), env={"TFS_PROXY_HOME": "/srv/work"}) as running:
        running.invoke(ASKED)
        changed = [line.split()[1] for line in docker("diff", running.name).splitlines()]

    made_by_docker = {"/opt/ml", "/opt/ml/model", "/opt/ml/model/model.tar.gz", "/opt", "/srv"}
    assert [path for path in changed if path not in made_by_docker and not path.startswith("/srv/work")] == []


def test_no_model_ends_the_container_with_a_sentence() -> None:
    with container(ready=False) as running:
        assert running.wait() == 2
        assert "/opt/ml/model" in running.log.splitlines()[-1]


def test_one_gigabyte_is_enough(scripted: Path) -> None:
    """A serverless endpoint's smallest size: `-m 1g`, without swap."""
    with container(*mounted(scripted), "-m", "1g", "--memory-swap", "1g") as running:
        for _ in range(50):
            assert running.invoke(ASKED).json == ANSWERED
        assert running.state["OOMKilled"] is False
        assert running.state["Running"]


def test_a_stop_while_starting_is_heard_by_pid_1(plain: Path) -> None:
    """Before anything is ready, SIGTERM ends the run with status 0 and without SIGKILL."""
    with container(*mounted(plain), ready=False) as running:
        running.wait_until(lambda: running.log, "it has printed its first line")
        docker("stop", "-t", "20", running.name)

        assert running.state["ExitCode"] == 0  # SIGKILL would make it 137


def test_the_image_says_what_it_is() -> None:
    """SageMaker's and OCI's labels, an exposed port, a health check, and no USER but a user to take."""
    about = docker("inspect", "--format", "{{json .Config}}", EMBEDDED)

    for capability in ("accept-bind-to-port", "multi-models"):
        assert f'"com.amazonaws.sagemaker.capabilities.{capability}":"true"' in about
    for label in ("licenses", "version", "revision", "created", "base.name"):
        assert f'"org.opencontainers.image.{label}":"' in about
    assert '"8080/tcp"' in about
    assert '"Healthcheck"' in about
    assert docker("run", "--rm", "--entrypoint", "id", EMBEDDED, "-u", "tfs") == "10001"


def test_scripts_find_the_libraries_of_aws_container_and_no_compiler() -> None:
    """What scripts of AWS's container import is there; what builds software is not."""
    imports = "; ".join(f"import {name}" for name in LIBRARIES.split())
    looked = f"python -c '{imports}' && for each in gcc cc g++ make ld; do command -v $each; done; true"
    assert docker("run", "--rm", "--entrypoint", "sh", EMBEDDED, "-c", looked) == ""


def test_the_image_is_small_enough() -> None:
    assert int(docker("image", "inspect", "--format", "{{.Size}}", EMBEDDED)) <= 1.75e9


def test_the_image_lists_what_is_in_it(tmp_path: Path) -> None:
    """The SBOM names the distribution's packages as its advisories do, and Python's; so does the licence list."""
    listed, bill = (
        docker("run", "--rm", "--entrypoint", "cat", EMBEDDED, f"/usr/share/tfs-proxy/{name}")
        for name in ("licences.tsv", "sbom.cdx.json")
    )
    (tmp_path / "sbom.cdx.json").write_text(bill)
    system, *packages = json.loads(bill)["components"]
    by_name = {each["name"]: each for each in packages}

    assert {"nginx", "python3", "falcon", "tensorflow-cpu", "tfs-proxy"} <= set(by_name)
    assert {"setuptools", "pygments"}.isdisjoint(by_name)
    assert set(by_name) <= {line.split("\t")[0] for line in listed.splitlines()}
    assert (system["type"], system["name"]) == ("operating-system", "debian")
    purl = by_name["libssl3t64"]["purl"]
    assert f"&distro=debian-{system['version']}&upstream=openssl" in purl
    assert by_name["nginx"]["hashes"][0]["alg"] == "SHA-256"
    with_ids = [each for each in packages if "id" in each.get("licenses", [{}])[0].get("license", {})]
    assert len(with_ids) > len(packages) / 2
    assert judge("sbom").saw("sbom_valid", tmp_path / "sbom.cdx.json") == {"wrong": None}
