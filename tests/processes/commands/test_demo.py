"""`tfs-proxy demo`: the archive and the pictures that the package brings."""

import json
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from support.stack import Stack
from tfs_proxy.wire.media_types import IMAGE

DEMO = Path(__file__).parents[3] / "src" / "tfs_proxy" / "demo"


@pytest.mark.tensorflow
def test_the_printed_command_is_answered_and_the_pictures_are_read() -> None:
    """The command is run by a shell as it is printed; nearly all pictures are read as they are named."""
    with closing(Stack("--model-server", "embedded", command="demo")) as stack:
        stack.wait_for_log("  try: ")
        (command,) = re.findall(r"^.* ready: .*  try: (curl .*)$", stack.log, re.MULTILINE)
        printed = subprocess.check_output(["bash", "-c", f"{command} -s"], text=True)
        picture = Path(re.findall(r"@(/\S+)", command)[0])
        assert picture.is_relative_to(DEMO)
        assert json.loads(printed)["predictions"][0]["digit"] == int(picture.name[0])
        assert (
            stack.ask("GET", "/", headers={"Accept": "text/html"})
            .headers["content-type"]
            .startswith("text/html")
        )

        pictures = sorted((DEMO / "pictures").iterdir())
        answers = [stack.invoke(each.read_bytes(), IMAGE).json["predictions"][0] for each in pictures]

    assert len(pictures) == 20
    right = sum(answer["digit"] == int(each.name[0]) for each, answer in zip(pictures, answers, strict=True))
    assert right >= 19


def test_the_demo_is_small() -> None:
    assert sum(path.stat().st_size for path in DEMO.rglob("*") if path.is_file()) <= 200_000


def test_without_any_model_server_it_says_what_to_install() -> None:
    hidden = "import sys; sys.modules['tensorflow'] = None; from tfs_proxy.cli import main; sys.exit(main())"
    words = [sys.executable, "-c", hidden, "demo", "--port", "0", "--host", "127.0.0.1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, env={"PATH": ""})
    assert done.returncode == 2
    (error,) = [line for line in done.stderr.splitlines() if "ERROR" in line]
    assert "tensorflow_model_server is not on PATH" in error
    assert "pip install" in error
