"""Versions and labels on the page, and its code for other clients: each gets the answer that the page shows."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.archives import has_nginx, pack
from support.endpoints import described, of_image, running_endpoint, variant
from support.multi_model import MultiModelStack, serving_many
from support.running import Running
from support.stack import Stack, serving
from support.transform_command import S3_SETTINGS

pytest.importorskip("selenium")
from support.browser import IN_BROWSER, Browser

pytestmark = IN_BROWSER
CURL, REQUESTS, BOTO3 = CLIENTS = ("curl", "Python requests", "boto3")
LABELS = {"SAGEMAKER_TFS_VERSION_LABELS": "stable=1,canary=2", "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "versions"}
RUN_SECONDS = 120


@pytest.fixture(scope="module")
def versions(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two models, one of them with versions and a label: requests need custom attributes."""
    folders = {"versions": saved_models / "versions", "three": saved_models / "half_plus_three"}
    archive = pack(tmp_path_factory.mktemp("versions") / "m.tar.gz", {}, folders)
    with serving(str(archive), "--model-server", "embedded", env=LABELS) as stack:
        yield stack


@pytest.fixture(scope="module")
def archives(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of archives, which requests name."""
    root = tmp_path_factory.mktemp("many")
    (root / "team").mkdir()
    pack(root / "team" / "half.tar.gz", {}, {"half": saved_models / "half_plus_two"})
    return root


@pytest.fixture(scope="module")
def many(archives: Path) -> Iterator[MultiModelStack]:
    if not has_nginx():
        pytest.skip("nginx is not installed")
    with serving_many("--multi-model", str(archives), "--model-server", "embedded") as stack:
        yield stack


@contextmanager
def in_front_of(running: Running, folder: Path, archives: Path | None) -> Iterator[Mapping[str, str]]:
    """The environment in which boto3 finds the endpoint ENDPOINT: of what runs, or of many ``archives``."""
    model = of_image(f"http://127.0.0.1:{running.port}")
    if archives is not None:
        model = {"PrimaryContainer": {"Mode": "MultiModel", "ModelDataUrl": str(archives)}}
    content = described({"m": model}, [variant("v", "m")])
    content["CreateEndpoint"]["EndpointName"] = "ENDPOINT"
    with running_endpoint(folder, content) as endpoint:
        yield {**S3_SETTINGS, "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": f"http://127.0.0.1:{endpoint.port}"}


def answered(
    running: Running, browser: Browser, client: str, folder: Path, archives: Path | None = None
) -> bytes:
    """The body of the answer that the code of a client gets."""
    names = [tab.text for tab in browser.driver.find_elements("css selector", "#clients button")]
    browser.click(f"#client-{names.index(client)}")
    code = browser.text("#snippet")
    argv = ["bash", "-c", code] if client == CURL else [sys.executable, "-c", code]
    no_variables: AbstractContextManager[Mapping[str, str]] = nullcontext({})
    with in_front_of(running, folder, archives) if client == BOTO3 else no_variables as variables:
        done = subprocess.run(
            argv,
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            timeout=RUN_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()
    if client == CURL:
        return done.stdout
    printed = done.stdout.decode()
    body: bytes = ast.literal_eval(printed[printed.index("b'") :])
    return body


def shown_json(browser: Browser) -> Any:
    """The answer that the page shows, as its view of JSON has it."""
    browser.driver.execute_script("[...document.querySelectorAll('#views button')].at(-1).click()")
    return json.loads(browser.text("#answer pre"))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_form_s_request(named: Stack, browser: Browser, tmp_path: Path, client: str) -> None:
    """The body stands in the code, quotes of every kind among it."""
    browser.visit(named)
    browser.click("#tab-text")
    rows = [{"a": [1.5, -2.0, 1e3], "b": 7}, {"a": [0, 0, 0], "b": -1}]
    browser.fill(
        "#body", json.dumps({"signature_name": "serving_default", "note": 'it\'s "so"', "instances": rows})
    )
    assert browser.send().startswith("200 OK")
    shown = shown_json(browser)
    assert shown["predictions"][0]["count"] == 14
    assert json.loads(answered(named, browser, client, tmp_path)) == shown


@pytest.mark.parametrize("client", CLIENTS)
def test_a_request_with_attributes(versions: Stack, browser: Browser, tmp_path: Path, client: str) -> None:
    """Model, label and type of the answer go with it; labels of versions are offered, and numbers."""
    browser.visit(versions)
    assert choices(browser) == ["newest (2)", "stable (label)", "canary (label)", "2", "1"]
    assert "Labels of versions: stable, canary" in browser.text("#served")
    browser.choose("#version", "stable (label)")
    browser.fill("#panel-form [data-input=x]", "1")
    browser.fill("#accept", "text/csv")
    assert browser.send().startswith("200 OK")
    assert "2.5" in browser.text("#answer")
    assert answered(versions, browser, client, tmp_path).strip() == b"2.5"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_file_s_request(versions: Stack, browser: Browser, tmp_path: Path, client: str) -> None:
    """The code reads the file by its name, also one with a quote in it."""
    path = tmp_path / "it's x.npy"
    np.save(path, np.array([1.0, 3.0], np.float32))
    browser.visit(versions)
    browser.drop("#drop", path)
    browser.wait(lambda: path.name in browser.text("#file-name"), "the file has been taken")
    assert browser.send().startswith("200 OK")
    assert json.loads(answered(versions, browser, client, tmp_path)) == shown_json(browser)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_request_to_one_of_many(
    many: MultiModelStack, archives: Path, browser: Browser, tmp_path: Path, client: str
) -> None:
    """By its path in the address, and as boto3's TargetModel."""
    browser.visit(many)
    browser.choose("#model", "team--half")
    browser.click("#tab-text")
    browser.fill("#body", '{"instances": [1.0]}')
    assert browser.send().startswith("200 OK")
    answer = json.loads(answered(many, browser, client, tmp_path, archives))
    assert answer == {"predictions": [2.5]} == shown_json(browser)


def choices(browser: Browser) -> list[str]:
    """What the field of versions offers."""
    return [option.text for option in browser.driver.find_elements("css selector", "#version option")]


def test_a_label_is_offered_only_for_models_that_have_its_version(versions: Stack, browser: Browser) -> None:
    """The settings give labels to all models; a request with one that a model lacks would be refused."""
    browser.visit(versions)
    browser.choose("#model", "three")
    assert choices(browser) == ["newest (123)", "123"]
