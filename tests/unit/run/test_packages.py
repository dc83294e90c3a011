"""What is installed for a script, as argv, without running anything."""

import importlib.util
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tfs_proxy.run.programs.packages import Install, plan_install
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import RequirementsError
from tfs_proxy.values.layout import ModelLayout, Workspace
from tfs_proxy.values.resources import Resources


def model_with(root: Path, *names: str, script: str = "inference.py") -> ModelLayout:
    layout = ModelLayout(root / "model")
    layout.code.mkdir(parents=True)
    for name in (script, *names):
        if name.endswith("/"):
            (layout.code / name).mkdir()
        else:
            (layout.code / name).write_text("numpy\n")
    return layout


def plan(
    layout: ModelLayout,
    *,
    pip: bool = True,
    environ: Mapping[str, str] = MappingProxyType({}),
) -> Install | None:
    settings = Settings.from_env(environ, Resources(2))
    workspace = Workspace(Path("/run"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda _: object() if pip else None)
        patch.setattr(shutil, "which", lambda _: None)
        return plan_install(layout, workspace, settings, environ)


@pytest.mark.parametrize(
    ("text", "script", "beside"),
    [
        *((text, "inference.py", ()) for text in ("", "\n", "# pillow would be\n   # a line\n")),
        ("numpy\n", "other.py", ()),
        ("numpy\n", "inference.py", ("lib/",)),
    ],
    ids=["empty", "blank", "comments", "no script", "code/lib"],
)
def test_nothing_where_nothing_is_asked_for(
    tmp_path: Path, text: str, script: str, beside: tuple[str, ...]
) -> None:
    """A file of comments, as `init` writes it, costs no start an environment; code/lib replaces it, as AWS has it."""
    layout = model_with(tmp_path, "requirements.txt", *beside, script=script)
    layout.requirements.write_text(text)

    assert plan(layout) is None


def test_with_wheels_no_index_is_asked(tmp_path: Path) -> None:
    """A name that code/wheels lacks may be anybody's on the index: only the setting has it asked, after the wheels."""
    layout = model_with(tmp_path, "requirements.txt", "wheels/")
    install, also = plan(layout), plan(layout, environ={"TFS_PROXY_INDEX": "also"})
    assert install is not None
    assert also is not None
    (offline,) = install.attempts
    assert "--no-index" in offline
    assert str(layout.wheels) in offline
    assert also.attempts[0] == offline
    assert "--no-index" not in also.attempts[1]
    assert str(layout.wheels) in also.attempts[1]


KEPT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PIP_INDEX_URL", "UV_INDEX_A_PASSWORD", "XDG_CACHE_HOME"),
    *("https_proxy", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
    *("CC", "CXX", "CFLAGS", "LDFLAGS", "LD_LIBRARY_PATH", "CUDA_HOME"),
)
OTHERS = (
    *("OPENAI_API_KEY", "DATABASE_URL", "GITHUB_PAT", "MYSQL_PWD", "SSH_AUTH_SOCK", "AWS_SESSION_TOKEN"),
    *("AWS_REGION", "DB_PASSWORD", "MY_PIP_KEY", "path", "CCACHE_KEY"),
)


@pytest.mark.parametrize(
    ("value", "more"),
    [
        ("", []),
        ("filtered", []),
        ("all", [*OTHERS, "TFS_PROXY_INSTALL_ENVIRONMENT"]),
        ("DATABASE_URL, AWS_*", ["DATABASE_URL", "AWS_REGION", "AWS_SESSION_TOKEN"]),
    ],
)
def test_the_installer_gets_only_what_is_let_through(tmp_path: Path, value: str, more: list[str]) -> None:
    """Set-up code of any package runs then: a list has what installers and compilers need, a setting adds to it."""
    environ = {**dict.fromkeys((*KEPT, *OTHERS), "x"), "TFS_PROXY_INSTALL_ENVIRONMENT": value}
    install = plan(model_with(tmp_path, "requirements.txt"), environ=environ)
    assert install is not None
    assert sorted(install.env) == sorted([*KEPT, *more])


def test_neither_pip_nor_uv(tmp_path: Path) -> None:
    """The error says what to do."""
    with pytest.raises(RequirementsError, match=r"neither pip nor uv .* code/lib"):
        plan(model_with(tmp_path, "requirements.txt"), pip=False)
