"""Bodies that a script reads in parts, in the script's own tests and without a socket."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import tfs_proxy.testing
from tfs_proxy.settings.settings import Settings
from tfs_proxy.testing import Reply, TensorSpec, signature

X = signature({"x": TensorSpec("x", "DT_FLOAT", (None,))}, {"y": TensorSpec("y", "DT_FLOAT", (None,))})
CLASS = "def handler(data, context):\n    return type(data).__name__, 'text/plain'\n"
WHOLE, IN_PARTS = "BytesIO", "BufferedReader"


def posted(
    folder: Path, script: str, body: bytes = b"", env: dict[str, str] | None = None, **headers: str
) -> Reply:
    """The answer of a script whose model answers with twice its input."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    path = folder / "inference.py"
    path.write_text(script)
    with tfs_proxy.testing.load(
        path,
        signatures=X,
        outputs=lambda inputs: {"y": np.asarray(inputs["x"]) * 2},
        settings=Settings.from_env(env or {}),
    ) as loaded:
        return loaded.post(body, "application/json", headers=named)


@pytest.mark.parametrize(
    ("added", "kind"),
    [
        ("", WHOLE),
        ("handler.streams = True\n", IN_PARTS),
        ("handler.streams = False\n", WHOLE),
        ("setattr(handler, 'streams', True)\n", IN_PARTS),
        # It is not called.
        ("def input_handler(data, context): ...\ninput_handler.streams = True\n", WHOLE),
    ],
)
def test_a_script_asks_for_them(tmp_path: Path, added: str, kind: str) -> None:
    """And it is the function that gets the body that has to say so."""
    assert posted(tmp_path, CLASS + added).text == kind


def test_input_handler_reads_them_too(tmp_path: Path) -> None:
    """The model server's request is what it makes of them."""
    script = (
        "import numpy as np\ndef input_handler(data, context):\n"
        "    return np.array([float(line) for line in data], np.float32)\ninput_handler.streams = True\n"
    )
    assert json.loads(posted(tmp_path, script, b"1\n2\n").body) == {"predictions": [2.0, 4.0]}


def test_the_default_conversion_takes_them_whole(tmp_path: Path) -> None:
    """Within the memory that the values of a body may take."""
    script = (
        "def handler(data, context):\n"
        "    return context.default_output(context.predict(context.default_input(data)))\nhandler.streams = True\n"
    )
    small = {"TFS_PROXY_MAX_DECODED_TOTAL_MB": "2", "SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}
    assert posted(tmp_path, script, b"[1, 2]", small).json == {"predictions": [[2.0, 4.0]]}
    assert posted(tmp_path, script, b" " * 2_100_000 + b"[1]", small).status == 413


@pytest.mark.parametrize("damage", ["cut", "flipped", "not gzip"])
def test_what_gzip_can_not_unpack_is_a_400(tmp_path: Path, damage: str) -> None:
    """Also if the script catches the error of its read."""
    packed = gzip.compress(bytes(range(256)) * 1000)
    body = {"cut": packed[:-9], "flipped": packed[:40] + b"\xff\xff" + packed[42:], "not gzip": b"plain"}[
        damage
    ]
    script = (
        "def handler(data, context):\n    try:\n        return data.read(), 'text/plain'\n"
        "    except Exception:\n        return 'swallowed'\nhandler.streams = True\n"
    )
    assert posted(tmp_path, script, body, Content_Encoding="gzip").status == 400
    assert posted(tmp_path, script, body, Content_Encoding="br").status == 415
