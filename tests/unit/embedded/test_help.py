"""The embedded model server's help, without TensorFlow."""

import pytest

from tfs_proxy.embedded.flags import usage
from tfs_proxy.embedded.server import main


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_the_flags_with_their_defaults(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And ends with 0, whatever else is asked."""
    assert main([flag, "--port=1"]) == 0
    printed = capsys.readouterr().out

    assert printed.strip() == usage()
    assert "  --rest_api_timeout_in_ms=30000\n" in printed
    assert "Accepted without effect: flush_filesystem_caches" in printed
