"""Settings -> what is captured."""

from pathlib import Path

import pytest

from tfs_proxy.capture.files import capture_options, is_chosen
from tfs_proxy.deployment import CaptureOptions
from tfs_proxy.settings import Settings


@pytest.mark.parametrize("env", [{}, {"TFS_PROXY_CAPTURE": "a", "TFS_PROXY_CAPTURE_PERCENT": "0"}])
def test_without_a_target_or_a_share_nothing_is_captured(env: dict[str, str]) -> None:
    """Then nothing of it runs."""
    assert capture_options(Settings.from_env(env), "m") is None


def test_options_come_from_the_settings() -> None:
    """A folder is absolute, since workers may stand elsewhere; an address in S3 stays as it is."""
    env = {"TFS_PROXY_CAPTURE": "records", "TFS_PROXY_CAPTURE_PERCENT": "12.5"}
    more = {"TFS_PROXY_CAPTURE_MAX_MB": "2", "TFS_PROXY_CAPTURE_KEEP": "output"}

    assert capture_options(Settings.from_env({**env, **more}), "m") == CaptureOptions(
        str(Path.cwd() / "records"), "m", 12.5, 2 * 1024 * 1024, keeps_input=False
    )
    in_s3 = capture_options(Settings.from_env({"TFS_PROXY_CAPTURE": "s3://bucket"}), "m")
    assert in_s3 is not None
    assert (in_s3.target, in_s3.is_s3) == ("s3://bucket", True)


@pytest.mark.parametrize(
    ("model", "name", "folder"),
    [
        ("m", None, "m"),
        ("m", "shop", "shop"),
        ("my model/é", None, "my_model__"),
        ("..", None, "model"),
        ("", None, "model"),
    ],
)
def test_the_folder_has_a_name_that_is_one(model: str, name: str | None, folder: str) -> None:
    """Whatever a model is called."""
    env = {"TFS_PROXY_CAPTURE": "/records", **({"TFS_PROXY_CAPTURE_NAME": name} if name else {})}
    options = capture_options(Settings.from_env(env), model)

    assert options is not None
    assert options.name == folder


def test_the_share_is_that_of_the_percent() -> None:
    """All at 100, and half at 50."""
    all_of_them = CaptureOptions("a", "m", 100.0, 1)
    half = CaptureOptions("a", "m", 50.0, 1)

    assert is_chosen(all_of_them, lambda: 0.999)
    shares = iter((0.0, 0.49, 0.5, 0.99))
    assert [is_chosen(half, shares.__next__) for _ in range(4)] == [True, True, False, False]
