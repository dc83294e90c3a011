"""A script's requirements inside a container: from local wheels, on file systems that may not execute."""

import subprocess
from pathlib import Path

import pytest

from support.archives import pack
from support.containers import EMBEDDED, container, mounted
from support.wheels import write_wheel

SCRIPT = """
import json
from native_wheel import checksum

def handler(data, context):
    return json.dumps({"crc": checksum(data.read())}), "application/json"
"""
MODULE = """
import ctypes
from pathlib import Path

library = ctypes.CDLL(str(Path(__file__).with_name("native.so")))
library.crc32.restype = ctypes.c_ulong

def checksum(data):
    return library.crc32(0, data, len(data))
"""


@pytest.fixture(scope="module")
def with_native_wheel(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive whose script needs a wheel with a native library: the image's own zlib under another name."""
    library = subprocess.run(
        ["docker", "run", "--rm", "--entrypoint", "sh", EMBEDDED, "-c", "cat /usr/lib/*/libz.so.1"],
        check=True,
        capture_output=True,
    ).stdout
    folder = tmp_path_factory.mktemp("native")
    wheel = write_wheel(folder, "native_wheel", "1.0", more={"native_wheel.py": MODULE, "native.so": library})
    files: dict[str, str | bytes] = {
        "code/inference.py": SCRIPT,
        "code/requirements.txt": "native-wheel==1.0\n",
        f"code/wheels/{wheel.name}": wheel.read_bytes(),
    }
    return pack(folder / "model.tar.gz", files, {"half_plus_two": saved_models / "half_plus_two"})


@pytest.mark.parametrize(
    "options",
    [
        ("--network", "none"),
        ("--read-only", "--tmpfs", "/tmp:exec", "--user", "10001:10001"),
        ("--read-only", "--tmpfs", "/tmp", "-v", "/work", "-e", "TFS_PROXY_HOME=/work"),
    ],
    ids=["without a network", "tmpfs that executes", "volume"],
)
def test_requirements_install_from_the_archives_wheels(
    with_native_wheel: Path, options: tuple[str, ...]
) -> None:
    """No index is needed, and native modules load where the file system lets them."""
    with container(*options, *mounted(with_native_wheel), ready=False) as running:
        if "none" in options:
            running.wait_for_log("ready: ")
            said = running.run("python", "-c", ASK_INSIDE)
        else:
            running.wait_ready()
            said = running.invoke(b"123456789").body.decode()

    assert said == '{"crc": 3421780262}'


ASK_INSIDE = """
import urllib.request
url = "http://127.0.0.1:8080/invocations"
print(urllib.request.urlopen(url, data=b"123456789").read().decode())
"""


def test_a_file_system_that_may_not_execute_is_named_in_one_sentence(with_native_wheel: Path) -> None:
    with container("--read-only", "--tmpfs", "/tmp", *mounted(with_native_wheel), ready=False) as running:
        assert running.wait() == 3
        (sentence,) = [line for line in running.log.splitlines() if "noexec" in line]

    assert "native.so can't be loaded" in sentence
    assert "--tmpfs /tmp:exec" in sentence
    assert "TFS_PROXY_HOME" in sentence
