"""What `import tfs_proxy` offers to scripts, and what it costs."""

import subprocess
import sys

import pytest

import tfs_proxy
from tfs_proxy.serving.script.context import Context
from tfs_proxy.serving.script.handlers import ModelResponse


def test_types_for_annotations() -> None:
    """They are there when asked for; other names are not."""
    assert tfs_proxy.Context is Context
    assert tfs_proxy.ModelResponse is ModelResponse
    assert set(tfs_proxy.__all__) >= {"HTTPError", "Request", "Response"}
    with pytest.raises(AttributeError, match="no attribute 'Contxt'"):
        tfs_proxy.Contxt  # noqa: B018


def test_the_import_is_light() -> None:
    """The command line imports the package before it binds the port: no numpy, no requests."""
    code = "import sys, tfs_proxy; print({'numpy', 'requests', 'falcon'} & set(sys.modules))"

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout.strip() == "set()"
