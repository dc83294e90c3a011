"""`tfs-proxy endpoint` with containers of our image, by Docker."""

import json
import signal
from pathlib import Path

from support import containers
from support.containers import EMBEDDED
from support.endpoints import described, of_image, running_endpoint, variant
from support.transform_jobs import completed, job_request, written
from support.waiting import wait_until


def test_image_that_docker_has_is_started_asked_and_removed(plain: Path, tmp_path: Path) -> None:
    """With the archive at /opt/ml/model, and the variables of the config; also if the endpoint is killed."""
    environment = {"SAGEMAKER_GUNICORN_WORKERS": "1"}
    model = of_image(EMBEDDED, ModelDataUrl=str(plain), Environment=environment)
    with running_endpoint(tmp_path, described({"m": model}, [variant("v", "m")])) as endpoint:
        answer = endpoint.invoke_endpoint('{"instances": [1.0]}', ContentType="application/json")
        body = answer["Body"].read()
        of_ours = ("ps", "-a", "--filter", f"name=tfs-proxy-endpoint-{endpoint.process.pid}-", "--quiet")
        assert containers.docker(*of_ours)
        endpoint.stop(signal.SIGKILL)

    assert b"2.5" in body
    wait_until(lambda: not containers.docker(*of_ours), 30, "it is removed")


def test_many_models_are_unpacked_where_their_own_container_sees_them(
    plain: Path, scripted: Path, tmp_path: Path
) -> None:
    """The platform's part: /opt/ml/models/ID/model, loaded by the first request; others have other folders."""
    for prefix, archive in (("a", plain), ("b", scripted)):
        (tmp_path / prefix).mkdir()
        (tmp_path / prefix / "m.tar.gz").write_bytes(archive.read_bytes())
    models = {name: of_image(EMBEDDED, ModelDataUrl=name, Mode="MultiModel") for name in ("a", "b")}
    content = described(models, [variant(name, name) for name in models])
    asked = {"ContentType": "application/json", "TargetModel": "/m.tar.gz"}
    listed = {}
    with running_endpoint(tmp_path, content) as endpoint:
        for name in models:
            answer = endpoint.invoke_endpoint('{"instances": [1.0]}', TargetVariant=name, **asked)
            assert b"2.5" in answer["Body"].read()
        for container in containers.docker("ps", "--format", "{{.Names}}").split():
            if container.startswith("tfs-proxy-endpoint-"):
                find = ("find", "/opt/ml/models", "-name", "inference.py")
                listed[container] = containers.docker("exec", container, *find)

    assert sorted(map(bool, listed.values())) == [False, True]


def test_transform_job_runs_in_an_image_that_docker_has(plain: Path, tmp_path: Path) -> None:
    """With the variables of a batch job; a second job knows by the image what the first has finished."""
    model = {"ModelName": "m", "PrimaryContainer": {"Image": EMBEDDED, "ModelDataUrl": str(plain)}}
    source = written(tmp_path / "in", a="1.0\n2.0\n")
    asked = job_request("j", source, tmp_path / "out", Environment={"SAGEMAKER_GUNICORN_WORKERS": "1"})
    with running_endpoint(tmp_path, {"CreateModel": model}) as endpoint:
        for name in ("j", "again"):
            completed(endpoint, {**asked, "TransformJobName": name})
        log = endpoint.log

    assert json.loads((tmp_path / "out" / "a.csv.out").read_bytes()) == {"predictions": [2.5, 3.0]}
    assert "SAGEMAKER_BATCH=true" in log
    assert "1 finished before" in log
    assert "tfs-proxy-endpoint-" not in containers.docker("ps", "-a", "--format", "{{.Names}}")
