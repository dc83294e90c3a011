"""Loading a user's inference.py."""

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfs_proxy.serving.script.load import load_script


@pytest.fixture(autouse=True)
def _own_import_state() -> Iterator[None]:
    """Leave sys.path and sys.modules as they were."""
    path, modules, no_bytecode = list(sys.path), set(sys.modules), sys.dont_write_bytecode
    yield
    sys.dont_write_bytecode = no_bytecode
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(folder: Path, text: str, name: str = "inference.py") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return str(folder / name)


def test_modules_next_to_it(tmp_path: Path) -> None:
    """Modules in code/ and packages in code/lib import, code/ first."""
    code = tmp_path / "code"
    write(code, "WHO = 'code'", "beside_it.py")
    write(code / "lib", "WHO = 'lib'", "beside_it.py")
    write(code / "lib", "WHO = 'lib'", "vendored_one.py")
    path = write(
        code, "import beside_it, vendored_one\ndef handler(d, c): return beside_it.WHO, vendored_one.WHO"
    )

    script = load_script(path, (str(code), str(code / "lib")))

    assert script.handler is not None
    assert script.handler(None, None) == ("code", "lib")
    assert not list(code.rglob("__pycache__"))


def test_dataclasses_and_pickle(tmp_path: Path) -> None:
    """Classes of the script can be pickled: its module is known by its name."""
    path = write(
        tmp_path,
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Point:\n    x: int\n"
        "def handler(data, context): return Point(1)",
    )

    script = load_script(path)

    assert script.handler is not None
    point = script.handler(None, None)
    assert pickle.loads(pickle.dumps(point)) == point
