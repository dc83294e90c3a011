"""Models of multi-model containers on disk: whose they are, which version, and that they are whole."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from support.archives import pack
from tfs_proxy.model.fetch import fetch
from tfs_proxy.tools.endpoint.starter import UnpackedModels
from tfs_proxy.values.layout import Workspace

MOUNT = "/opt/ml/models"


def archive(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    return pack(path, {"said": text}, {})


def models(root: Path, endpoint: str, prefix: Path) -> UnpackedModels:
    """Those of an endpoint in a run whose folder is ``root``."""
    numbers = iter(range(1000))

    async def unpacked(address: str) -> Path:
        own = root / f"{endpoint}{prefix.name}{next(numbers)}"
        own.mkdir(parents=True)
        return await asyncio.to_thread(partial(fetch, address, Workspace(own)))

    root.mkdir(exist_ok=True)
    return UnpackedModels(root, endpoint, str(prefix), unpacked)


def text(of: UnpackedModels, address: Path) -> str:
    """What the file says in the folder that the container is told, seen from outside."""
    model_id, url = asyncio.run(of.unpack(str(address), MOUNT))
    assert url == f"{MOUNT}/{model_id}/model"
    return (of.folder / model_id / "model" / "said").read_text()


def test_archives_of_one_name_are_models_of_their_own(tmp_path: Path) -> None:
    """Those of two endpoints, and of two prefixes of one; no container sees a folder of the others."""
    for prefix in ("a", "b"):
        archive(tmp_path / prefix / "m.tar.gz", prefix)
    a, b, other = (
        models(tmp_path / "run", endpoint, tmp_path / prefix)
        for endpoint, prefix in (("first", "a"), ("first", "b"), ("second", "a"))
    )

    assert [text(a, tmp_path / "a/m.tar.gz"), text(b, tmp_path / "b/m.tar.gz")] == ["a", "b"]
    assert text(other, tmp_path / "a/m.tar.gz") == "a"
    assert len({each.folder for each in (a, b, other)}) == 3
    assert [len(list(each.folder.iterdir())) for each in (a, b, other)] == [1, 1, 1]


@pytest.mark.parametrize("is_folder", [False, True], ids=["an archive", "a folder"])
def test_new_archive_under_an_old_name_is_a_new_model(tmp_path: Path, is_folder: bool) -> None:
    """The next load has it; what was unpacked before stays as it is for those who read it."""
    path, of = tmp_path / "a" / "m.tar.gz", models(tmp_path / "run", "shop", tmp_path / "a")
    seen = []
    for said in ("old", "new"):
        if is_folder:
            path.mkdir(parents=True, exist_ok=True)
            written = path.with_name("written")
            written.write_text(said)
            written.rename(path / "said")
        else:
            archive(path, said)
        seen += [text(of, path), text(of, path)]

    assert seen == ["old", "old", "new", "new"]
    assert sorted((each / "model/said").read_text() for each in of.folder.iterdir()) == ["new", "old"]


def test_instances_that_unpack_at_once_share_one_whole_copy(tmp_path: Path) -> None:
    path = archive(tmp_path / "a" / "m.tar.gz", "x" * 100_000)
    of = models(tmp_path / "run", "shop", tmp_path / "a")

    async def at_once() -> set[tuple[str, str]]:
        return set(await asyncio.gather(*(of.unpack(str(path), MOUNT) for _ in range(8))))

    ((model_id, _),) = asyncio.run(at_once())
    assert (of.folder / model_id / "model" / "said").stat().st_size == 100_000
    assert list((tmp_path / "run").rglob("said")) == [of.folder / model_id / "model" / "said"]
