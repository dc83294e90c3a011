"""Files of TLS that can't be used are named, before nginx gets them."""

from pathlib import Path

import pytest

from support.certificates import Authority
from tfs_proxy.run.nginx.front_files import FrontFiles
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import SettingsError

PAIR = {"CERTIFICATE": "a.crt", "KEY": "a.key"}


@pytest.mark.parametrize(
    ("files", "refused"),
    [
        ({**PAIR, "CLIENT_CA": "ca.pem"}, ""),
        ({**PAIR, "CERTIFICATE": "none"}, "CERTIFICATE=none can't be read: No such file or directory."),
        ({**PAIR, "CERTIFICATE": "."}, "CERTIFICATE=. can't be used: it is not a file."),
        (
            {**PAIR, "CERTIFICATE": "a.key"},
            "CERTIFICATE=a.key can't be used: it must be a certificate in PEM",
        ),
        ({**PAIR, "KEY": "b.key"}, "KEY=b.key .* the key of .*=a.crt, .*KEY_VALUES_MISMATCH"),
        ({**PAIR, "KEY": "locked"}, "KEY=locked .* without a passphrase"),
        ({**PAIR, "KEY": "empty"}, "KEY=empty can't be used"),
        ({**PAIR, "CLIENT_CA": "b.crt"}, "CA=b.crt .* certificates of CAs in PEM."),
        ({**PAIR, "CLIENT_CA": "empty"}, "CA=empty can't be used"),
    ],
)
def test_files_that_can_not_be_used_are_named(
    files: dict[str, str], refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is copied then; a copy is for nobody else to read."""
    monkeypatch.chdir(tmp_path)
    authority, home = Authority(tmp_path), tmp_path / "home"
    home.mkdir()
    authority.sign("a")
    authority.sign("b")
    authority.sign("c", passphrase=b"p").rename("locked")
    Path("empty").touch()
    front = FrontFiles(
        Settings.from_env({f"TFS_PROXY_TLS_{name}": path for name, path in files.items()}), home
    )

    if refused:
        with pytest.raises(SettingsError, match=f"^TFS_PROXY_TLS_.*{refused}"):
            front.use(front.read())
        assert {path.suffix for path in home.iterdir()} <= {".new"}
    else:
        front.use(front.read())
        assert {path.stat().st_mode & 0o777 for path in home.iterdir()} == {0o600}
