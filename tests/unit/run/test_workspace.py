"""The folder of a run: where it can be, and what is said where it can't."""

from pathlib import Path

import pytest

from tfs_proxy.run.host.workspace import refuse_unusable
from tfs_proxy.values.errors import SettingsError


@pytest.mark.parametrize(
    "name", ["a b", 'a"b', "it's", "a;b", "{a}", "$a", "a\\nb", "a%41", "a\nb", "a\x1bb"]
)
def test_a_home_that_nginx_or_grpc_would_misread_is_refused(tmp_path: Path, name: str) -> None:
    """The sentence names the variable, on one line."""
    with pytest.raises(
        SettingsError, match=r"^TFS_PROXY_HOME=.* can't be used: the path has .*short path"
    ) as caught:
        refuse_unusable(str(tmp_path / name))

    assert str(caught.value).isprintable()


def test_a_home_whose_sockets_would_have_too_long_paths_is_refused(tmp_path: Path) -> None:
    """The system takes 107 bytes of a path, the random name and the socket included."""
    fits = tmp_path / ("x" * (107 - len(str(tmp_path)) - len("/" + "/tfs-proxy-12345678/gate127.sock")))

    refuse_unusable(str(fits))
    with pytest.raises(SettingsError, match="1 bytes longer than the 107"):
        refuse_unusable(f"{fits}x")
