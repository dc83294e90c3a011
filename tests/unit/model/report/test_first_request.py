"""The request that start-up suggests: made of a signature, or of a script's text."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from support.signatures import floats, signature_of
from tfs_proxy.data.formats.npy import read_npy
from tfs_proxy.model.discover import DiscoveredModel
from tfs_proxy.model.report.first_request import NPY_TYPES, command_in, first_request, ready_line
from tfs_proxy.model.report.served import FLOATS, Served
from tfs_proxy.model.report.startup import ModelReport
from tfs_proxy.values.layout import ModelLayout
from tfs_proxy.values.signature import Signature
from tfs_proxy.wire.dtypes import DTYPES, Kind

URL = "http://localhost:8080"


def command(
    root: Path,
    known: Signature | None,
    *,
    script: str | None = None,
    graph: bytes = b"",
    script_model: bool = False,
) -> str:
    """The command for a model of this signature; ``graph`` is what its saved_model.pb holds."""
    version = root / "m" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").write_bytes(b"x" + graph)
    if script is not None:
        (root / "code").mkdir()
        (root / "code" / "inference.py").write_text(script)
    models = () if script_model else (DiscoveredModel("m", {1: version}),)
    served = Served(ModelLayout(root), models, "" if script_model else "m")
    reports = [] if script_model else [ModelReport("m", (1,), {known.name: known} if known else None)]
    return first_request(served, reports, rest_api=True).command(URL)


@pytest.mark.parametrize("dtype", sorted(NPY_TYPES))
def test_a_large_input_is_made_by_the_shell(tmp_path: Path, dtype: str) -> None:
    text = command(tmp_path, signature_of(x=(dtype, (None, 32, 32, 3))))

    made, _, rest = text.partition(" | ")
    array = read_npy(subprocess.run(["/bin/sh", "-c", made], capture_output=True, check=True).stdout)

    assert rest == f"curl -H 'Content-Type: application/x-npy' --data-binary @- {URL}/invocations"
    assert array.shape == (1, 32, 32, 3)
    assert array.dtype == np.dtype(NPY_TYPES[dtype])
    assert not array.any()


def test_types_are_those_of_the_conversions() -> None:
    """The table of npy types and the conversions' own agree."""
    known = {name: dtype.newbyteorder("<").str for name, (_, dtype) in DTYPES.items() if name != "DT_STRING"}
    assert known == NPY_TYPES
    assert {name for name, (kind, _) in DTYPES.items() if kind is Kind.FLOAT} == FLOATS


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (b"\x12\x0aDecodeJpeg", "-H 'Content-Type: application/x-image' --data-binary @FILE"),
        (
            b"\x12\x0bDecodeImage\x12\x0cDecodeBase64",
            """'{"instances": ["'$(basenc --base64url -w0 FILE)'"]}'""",
        ),
    ],
)
def test_a_model_that_decodes_pictures_takes_a_file(tmp_path: Path, graph: bytes, words: str) -> None:
    """Nobody can make up the reader's picture."""
    assert words in command(tmp_path, signature_of(x=("DT_STRING", (None,))), graph=graph)


@pytest.mark.parametrize(
    "known",
    [
        None,
        signature_of(),
        signature_of(x=("DT_COMPLEX64", (None,))),
        signature_of(x=("DT_STRING", (99999,))),
    ],
)
def test_a_signature_that_nothing_can_be_made_of(tmp_path: Path, known: Signature | None) -> None:
    """The model's metadata is what can be asked for in any case."""
    assert command(tmp_path, known) == f"curl {URL}/v1/models/m/metadata"


ROW = floats(None, 3)
COMPARING = "def input_handler(data, context):\n    if context.request_content_type == {!r}: ...\n"
SCRIPTS = {
    "json": (COMPARING.format("application/json"), """-d '{"instances": [[1.0, 1.0, 1.0]]}'"""),
    "csv": (COMPARING.format("text/csv"), "-H 'Content-Type: text/csv' -d 1.0,1.0,1.0 "),
    "a picture": (COMPARING.format("image/jpeg"), "-H 'Content-Type: image/jpeg' --data-binary @FILE"),
    "one of several": (
        "def handler(data, context):\n    if context.request_content_type in ('image/png', 'image/jpeg'): ...\n",
        "-H 'Content-Type: image/png' --data-binary @FILE",
    ),
    "a pattern": (
        "def handler(data, context):\n    match context.request_content_type:\n        case 'audio/wav': ...\n",
        "-H 'Content-Type: audio/wav' --data-binary @FILE",
    ),
    "a table": (
        "TYPES = {'image/png': 'PNG'}\ndef handler(data, context): return b'', 'text/plain'\n",
        "-H 'Content-Type: image/png' --data-binary @FILE",
    ),
    "types of the answer alone": (
        "def output_handler(response, context):\n    if context.accept_header == 'text/csv': ...\n",
        """-d '{"instances": [[1.0, 1.0, 1.0]]}'""",
    ),
    "a form of its own": (
        "def input_handler(data, context):\n    return json.dumps({'instances': [json.loads(data.read())['text']]})",
        "-H 'Content-Type: application/json' --data-binary @FILE",
    ),
    "the model server's form, taken apart": (
        "def input_handler(data, context):\n    rows = json.loads(data.read())['instances']\n",
        """-d '{"instances": [[1.0, 1.0, 1.0]]}'""",
    ),
    "lines of a type that it does not name": (
        "def input_handler(data, context):\n    for line in data.read().decode().splitlines(): ...\n",
        "--data-binary @FILE",
    ),
    "the default conversion": (
        "def input_handler(data, context):\n    x = context.default_input(data)\n    json.loads('')\n",
        """-d '{"instances": [[1.0, 1.0, 1.0]]}'""",
    ),
    "objects of a class": (
        "class House: ...\ndef handler(houses: 'list[House]', context): ...\n",
        "-H 'Content-Type: application/json' --data-binary @FILE",
    ),
    "none": ("def handler(data, context): ...\n", """-d '{"instances": [[1.0, 1.0, 1.0]]}'"""),
}


@pytest.mark.parametrize("case", SCRIPTS)
def test_a_script_is_sent_the_type_that_it_names(tmp_path: Path, case: str) -> None:
    script, words = SCRIPTS[case]
    assert words in command(tmp_path, ROW, script=script)


def test_the_command_of_a_ready_line_can_be_had_for_another_address() -> None:
    """A pipeline suggests what its first stage does, at its own address."""
    line = f"tfs-proxy: {ready_line(URL, f'curl -d 1 {URL}/invocations')}"
    assert command_in(line, "http://localhost:7") == "curl -d 1 http://localhost:7/invocations"
    assert command_in("tfs-proxy: listening on http://localhost:8080", URL) is None


def test_a_stage_takes_its_own_type(tmp_path: Path) -> None:
    """A script that is the model itself has no signature."""
    script = "def model_fn(d): ...\ndef input_fn(data, content_type):\n    if content_type != 'text/csv': raise ValueError\n"
    assert "-H 'Content-Type: text/csv' --data-binary @FILE" in command(
        tmp_path, None, script=script, script_model=True
    )


def test_the_example_that_init_wrote_is_sent(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text("{}")
    file = tmp_path / "request.json"

    assert f"-H 'Content-Type: application/json' --data-binary @{file} " in command(
        tmp_path, ROW, script=SCRIPTS["a picture"][0]
    )
