"""The documentation's pages: what comes from the code is current, and what is not run is valid."""

import ast
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import botocore.loaders
import botocore.model
import botocore.validate
import pytest
import urllib3
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from support.loading import load_script
from tfs_proxy import cli, testing

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
COMMANDS = DOCS / "reference" / "commands.md"
PAGES = sorted(DOCS.rglob("*.md"))
FENCE = re.compile(r"^( *)```(\S+)(?: title=\"([^\"]*)\")?\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
REASONS = ("Needs ", "Runs until")
READ_ONLY = ("text", "mermaid")
REFERENCE = load_script("docs_reference")


def blocks() -> Iterator[tuple[str, str, str, str]]:
    """Each fenced block: page, language, title, text."""
    for page in PAGES:
        for _, language, title, text in FENCE.findall(page.read_text()):
            yield str(page.relative_to(DOCS)), language, title, text


def shown_file(name: str) -> str:
    """The text of a file that a page shows."""
    (text,) = [text for _, _, title, text in blocks() if title == name]
    return text


def test_a_typed_script_is_short_and_does_what_its_page_says(tmp_path: Path) -> None:
    """A price of a house, with a model behind it, in twelve lines."""
    script = tmp_path / "inference.py"
    script.write_text(shown_file("house/code/inference.py"))
    spec = testing.TensorSpec("house", "DT_FLOAT", (None, 2))
    model = testing.signature({"house": spec}, {"price": testing.TensorSpec("price", "DT_FLOAT", (None, 1))})

    assert len(script.read_text().splitlines()) <= 12
    with testing.load(script, signatures=model, outputs={"price": [[230000]]}) as loaded:
        assert loaded.post({"area": 80, "rooms": 3}).json == {"price": 230000.0}
        assert loaded.calls[0].inputs["house"].tolist() == [[80.0, 3.0]]
        assert loaded.post({"area": 80}).json["details"][0]["loc"] == ["rooms"]


@pytest.mark.parametrize("name", ["settings", "commands", "metrics", "http", "chart"])
def test_reference_pages_are_those_of_the_code(name: str) -> None:
    """`make docs-reference` writes them."""
    assert (DOCS / "reference" / f"{name}.md").read_text() == getattr(REFERENCE, f"{name}_page")()


def test_every_command_has_a_section() -> None:
    """All that the help lists, in its order; the page about the images names the others."""
    sections = re.findall(r"^## (\S+)$", COMMANDS.read_text(), re.MULTILINE)
    images = (DOCS / "how-to" / "docker.md").read_text()

    assert sections == [*(name for names in cli.LISTED.values() for name in names), "model-server"]
    assert [name for name in cli.OF_THE_IMAGES if f"| `tfs-proxy {name} " not in images] == []


def test_every_block_is_run_or_says_why_not() -> None:
    """A command that is neither run nor marked would rot; a program without a name can't be run."""
    consoles = [(page, title) for page, language, title, _ in blocks() if language == "console"]
    others = [(page, language, title) for page, language, title, _ in blocks() if language != "console"]

    assert consoles
    assert [block for block in consoles if block[1] and not block[1].startswith(REASONS)] == []
    assert [block for block in others if not block[2] and block[1] not in READ_ONLY] == []


def commands_of_ours() -> Iterator[tuple[str, list[str]]]:
    """Each command of this package that README or a page shows, run or not: its name, and its flags."""
    texts = [README.read_text(), *(text for _, language, _, text in blocks() if language == "console")]
    for text in texts:
        for name, words in re.findall(
            r"^\$ (?:\S+=\S* )*tfs-proxy ([a-z-]+)(.*)$", text.replace("\\\n", " "), re.MULTILINE
        ):
            yield name, re.findall(r" (--[a-z0-9-_]+)", words.partition(" #")[0])


def test_commands_have_the_flags_that_the_pages_give_them() -> None:
    """Also those that need AWS, a cluster or Docker, which are not run."""
    help_texts = dict(
        re.findall(r"^## (\S+)$(.*?)(?=^## |\Z)", COMMANDS.read_text(), re.DOTALL | re.MULTILINE)
    )
    commands = list(commands_of_ours())

    assert {"serve", "check", "transform", "model-server"} <= {name for name, _ in commands}
    for name, flags in commands:
        assert [flag for flag in flags if flag not in help_texts[name]] == [], name


def sentences_of_the_code() -> Iterator[str]:
    """Each text in the package's modules; what a formatted text inserts is left out."""
    for module in (ROOT / "src" / "tfs_proxy").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_no_index_is_asked_for_this_package() -> None:
    """Its name in one may be somebody else's: clones and wheels are named, and where this copy came from."""
    texts = [README.read_text(), *(page.read_text() for page in DOCS.rglob("*.md")), *sentences_of_the_code()]

    assert [text for text in texts if re.search(r"install[^.\n]*tfs.proxy(\[|$)", text)] == []


def test_messages_to_look_up_are_those_of_the_code() -> None:
    """Who searches the page for a part of a message finds it; TensorFlow's messages are its own."""
    page = (DOCS / "how-to" / "troubleshooting.md").read_text()
    start = page.partition("## When a request fails")[0]
    cells = re.findall(r"^\| (`.*?`) \|", start, re.MULTILINE)
    entries = [*cells, *re.findall(r"^\*\*(`.*?`)\*\*", page, re.MULTILINE)]
    messages = {message for entry in entries for message in re.findall("`(.*?)`", entry)}
    of_tensorflow = {"The batch scheduling queue ... is full"}
    text = "\n".join(sentences_of_the_code())

    assert len(messages) > 20
    assert {message for message in messages - of_tensorflow if message not in text} == set()


@pytest.mark.parametrize("name", ["transform.py", "pipeline.py", "multi_model_endpoint.py"])
def test_what_boto3_sends_is_what_aws_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore validates every request by its service model before it would be sent; here none is."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    session = boto3.Session()
    sent: list[str] = []

    def answer(request: Any, **_: Any) -> Any:
        sent.append(request.url)
        body = urllib3.HTTPResponse(io.BytesIO(b'{"EndpointStatus": "InService"}'), preload_content=False)
        return AWSResponse(request.url, 200, HTTPHeaders(), body)

    session.events.register("before-send", answer)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", session)

    exec(shown_file(name), {})

    assert sent


def test_the_job_of_batch_transform_is_a_request_of_the_api() -> None:
    """The page says that the same file goes to SageMaker."""
    job = json.loads(shown_file("job.json"))

    description = botocore.loaders.Loader().load_service_model("sagemaker", "service-2")
    model = botocore.model.ServiceModel(description, "sagemaker")
    operations = {
        operation: model.operation_model(operation).input_shape for operation in model.operation_names
    }
    report = botocore.validate.ParamValidator().validate(
        job, operations.get("CreateTransformJob") or model.shape_for("CreateTransformJob")
    )

    assert not report.has_errors(), report.generate_report()
