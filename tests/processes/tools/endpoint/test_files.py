"""Requests to `tfs-proxy endpoint` name files of this machine only below the folders of --files."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.archives import pack
from support.endpoints import Endpoint, refusal, running_endpoint, variant
from support.remote_container import RemoteContainer, remote_container
from support.transform_command import outputs
from support.transform_jobs import completed, ended_job, job_request, written

SECRET = "sesame"


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that no request may name."""
    return written(tmp_path_factory.mktemp("outside") / "secrets", a=f"{SECRET}\n")


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory, outside: Path) -> Path:
    """The folder of --files, in which a link leads out."""
    folder = written(tmp_path_factory.mktemp("files") / "inside", a="1\n")
    (folder / "way-out").symlink_to(outside)
    (folder / "served").mkdir()
    (folder / "served" / "model.tar.gz").symlink_to(outside / "a.csv")
    return folder


@pytest.fixture(scope="module")
def container() -> Iterator[RemoteContainer]:
    with remote_container(headers={"Content-Type": "text/csv"}) as running:
        yield running


@pytest.fixture(scope="module")
def endpoint(inside: Path, container: RemoteContainer) -> Iterator[Endpoint]:
    """An endpoint with the model ``m``, and the asynchronous endpoint ``queued``."""
    with closing(Endpoint(files=inside)) as running:
        running.wait_ready()
        client = running.control_plane
        client.create_model(ModelName="m", PrimaryContainer={"Image": container.address})
        client.create_endpoint_config(**config_of("queued", AsyncInferenceConfig=answers_in(inside / "out")))
        client.create_endpoint(EndpointName="queued", EndpointConfigName="queued")
        yield running


def config_of(name: str, **more: object) -> dict[str, Any]:
    return {"EndpointConfigName": name, "ProductionVariants": [variant("v", "m")], **more}


def answers_in(folder: object) -> dict[str, Any]:
    return {"OutputConfig": {"S3OutputPath": str(folder)}}


def places(outside: Path, inside: Path) -> list[str]:
    """Ways to write the folder ``outside``, and one of another machine."""
    around = inside / ".." / ".." / outside.parent.name / outside.name
    return [str(outside), outside.as_uri(), str(around), f"{inside.as_uri()}/way-out", f"file://host{inside}"]


def test_no_request_names_a_file_outside(endpoint: Endpoint, outside: Path, inside: Path) -> None:
    """Archives, jobs and answers: by a path, a file:// address, ``..``, a link, or a host."""
    client = endpoint.control_plane
    for place in places(outside, inside):
        container = {"ModelDataUrl": place}
        source = {"S3Uri": place, "S3DataType": "S3Prefix", "CompressionType": "None"}
        for call, request, member in (
            (client.create_model, {"ModelName": "x", "PrimaryContainer": container}, "ModelDataUrl"),
            (
                client.create_model,
                {"ModelName": "x", "Containers": [{"ModelDataSource": {"S3DataSource": source}}]},
                "S3Uri",
            ),
            (client.create_transform_job, job_request("x", place, inside / "x"), "S3Uri"),
            (client.create_transform_job, job_request("x", inside / "a.csv", place), "S3OutputPath"),
            (
                client.create_endpoint_config,
                config_of("x", AsyncInferenceConfig=answers_in(place)),
                "S3OutputPath",
            ),
            (
                endpoint.runtime.invoke_endpoint_async,
                {"EndpointName": "queued", "InputLocation": place},
                "InputLocation",
            ),
        ):
            if member == "InputLocation" and not place.startswith("file:"):
                continue  # which is refused as no address
            code, message = refusal(call, **request)
            assert code in {"ValidationException", "ValidationError"}
            assert member in message
            assert ("--files" in message) == ("file://host" not in place)


@pytest.mark.parametrize(("place", "said"), [("{inside}/served", "--files"), ("file://[/m", "Invalid IPv6")])
def test_archives_in_folders_and_broken_addresses_are_refused(
    endpoint: Endpoint, inside: Path, place: str, said: str
) -> None:
    """A folder is served by the model.tar.gz in it, which may be a link; a sentence says what is wrong."""
    container = {"ModelDataUrl": place.format(inside=inside)}
    _, message = refusal(endpoint.control_plane.create_model, ModelName="x", PrimaryContainer=container)

    assert "ModelDataUrl" in message
    assert said in message


def test_jobs_are_not_led_outside(endpoint: Endpoint, outside: Path, inside: Path) -> None:
    """Neither by a link among their files, nor by a manifest; the reason quotes nothing of the file."""
    client = endpoint.control_plane
    manifest = inside / "of-secrets.manifest"
    manifest.write_text(json.dumps([{"prefix": str(outside)}, "a.csv"]))
    listed = job_request("listed", manifest, inside / "listed")
    listed["TransformInput"]["DataSource"]["S3DataSource"]["S3DataType"] = "ManifestFile"
    linked = written(inside / "links", b="1\n")
    (linked / "a.csv").symlink_to(outside / "a.csv")
    for asked in (listed, job_request("linked", linked, inside / "linked")):
        client.create_transform_job(**asked)
        seen = ended_job(endpoint, asked["TransformJobName"])
        assert seen["TransformJobStatus"] == "Failed"
        assert "--files" in seen["FailureReason"]
    assert SECRET not in endpoint.log


def test_files_inside_do(endpoint: Endpoint, inside: Path) -> None:
    """A job reads and writes below the folder, and so does an asynchronous call."""
    completed(endpoint, job_request("good", inside / "a.csv", inside / "good"))
    assert outputs(inside / "good") == {"a.csv.out": b"\n1"}
    address = f"file://localhost{inside}/a.csv"
    answer = endpoint.runtime.invoke_endpoint_async(EndpointName="queued", InputLocation=address)
    assert answer["OutputLocation"].startswith((inside / "out").as_uri())


def test_archives_of_many_models_are_not_links_to_others(outside: Path, tmp_path: Path) -> None:
    pack(outside / "m.tar.gz", {"said": SECRET}, {})
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.tar.gz").symlink_to(outside / "m.tar.gz")
    with remote_container() as container:
        many = {"Image": container.address, "Mode": "MultiModel", "ModelDataUrl": "models"}
        content: Mapping[str, Any] = {
            "CreateModel": {"ModelName": "m", "PrimaryContainer": many},
            "CreateEndpointConfig": config_of("c"),
            "CreateEndpoint": {"EndpointName": "shop", "EndpointConfigName": "c"},
        }
        with running_endpoint(tmp_path, content, files=tmp_path) as endpoint:
            _, message = refusal(endpoint.invoke_endpoint, TargetModel="m.tar.gz")
    assert "TargetModel" in message
    assert "--files" in message


def test_the_working_directory_is_the_default(tmp_path: Path) -> None:
    """A file that the command line names is held to it, too: its sentence says how to allow a folder."""
    content = {"ModelName": "m", "PrimaryContainer": {"ModelDataUrl": "m.tar.gz"}}
    (tmp_path / "config.json").write_text(json.dumps(content))
    with closing(Endpoint(str(tmp_path / "config.json"), files=None)) as endpoint:
        assert endpoint.wait() == 2
        assert f"ModelDataUrl {tmp_path}/m.tar.gz can't be used: it is not below {Path.cwd()}" in endpoint.log
