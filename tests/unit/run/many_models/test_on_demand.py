"""Models of a folder: loaded by the first request, and unloaded for others."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fake_stacks import Fleet, Part, admit_all
from support.waiting import wait_until
from tfs_proxy.run.many_models.admission import ModelUse
from tfs_proxy.run.many_models.archives import LocalArchives, ModelFolder, model_folder
from tfs_proxy.run.many_models.models import ModelRegistry
from tfs_proxy.run.many_models.on_demand import OnDemandModels, least_recently_used
from tfs_proxy.values.errors import ModelLoadError, NotEnoughResources, TfsProxyError, UnknownModel

WAIT_SECONDS = 30.0


class Scene:
    """The archives a, b and c in a folder, and a registry that takes ``most`` models.

    A load of c ends with ``failing``.
    """

    def __init__(self, folder: Path, most: int | None, failing: Exception | None) -> None:
        for name in "abc":
            (folder / f"{name}.tar.gz").write_bytes(b"")
        self.fleet = Fleet(lambda name, _url: Part(0.0, failing if name == "c" else None))
        self.registry = ModelRegistry(self.fleet.launch, most, admit_all)
        self.uses: Sequence[ModelUse] = ()
        self.models = OnDemandModels(self.registry, model_folder(str(folder)), lambda: self.uses)

    def loaded(self) -> list[str]:
        """The names of the models that are loaded."""
        return [model.name for model in self.registry.list()]


def play(
    folder: Path,
    scene: Callable[[Scene], Awaitable[None]],
    most: int | None = None,
    failing: Exception | None = None,
) -> None:
    """Play a scene, and unload all; a load of c ends with ``failing``."""

    async def run() -> None:
        made = Scene(folder, most, failing)
        await scene(made)
        await made.registry.close()
        assert made.fleet.faults == []

    asyncio.run(run())


class HangingFolder(LocalArchives):
    """Answers nothing until its gate is open, as a network file system whose server is gone."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = threading.Event()
        self.asked: list[str] = []
        self.answered = threading.Event()

    def _hang(self, asked: str) -> None:
        self.asked.append(asked)
        assert self.gate.wait(WAIT_SECONDS)
        self.answered.set()

    def paths(self) -> Iterator[str]:
        self._hang("all")
        yield from super().paths()

    def below(self, url: str) -> str | None:
        self._hang(url)
        return super().below(url)


def test_names_without_an_archive_share_a_look_at_the_folder(tmp_path: Path) -> None:
    store = HangingFolder(tmp_path)

    async def scene(made: Scene) -> None:
        models = OnDemandModels(made.registry, ModelFolder(store), lambda: ())
        asked = [asyncio.create_task(models.ready(f"no-{number}", WAIT_SECONDS)) for number in range(50)]
        await asyncio.to_thread(wait_until, lambda: store.asked, WAIT_SECONDS, "the folder is looked at")
        one_who_leaves = asked.pop(0)
        one_who_leaves.cancel()
        store.gate.set()
        refused = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(error) for error in refused] == [UnknownModel] * 49
        assert store.asked == ["all"]

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "ask",
    [lambda models: models.ready("a", WAIT_SECONDS), lambda models: models.load("a", "a.tar.gz")],
    ids=["a request", "a load"],
)
def test_a_folder_that_hangs_does_not_hold_up_the_exit(
    tmp_path: Path, ask: Callable[[OnDemandModels], Coroutine[None, None, None]]
) -> None:
    """The thread that waits for it is left behind."""
    store = HangingFolder(tmp_path)

    async def scene(made: Scene) -> None:
        asked = asyncio.create_task(ask(OnDemandModels(made.registry, ModelFolder(store), lambda: ())))
        while not store.asked:  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0)
        asked.cancel()

    play(tmp_path, scene)

    assert not store.answered.is_set()
    store.gate.set()


def test_a_load_that_has_just_failed_is_not_tried_again(tmp_path: Path) -> None:
    """Every request would take the time of another load; the error is the same."""

    async def scene(made: Scene) -> None:
        for _ in range(3):
            with pytest.raises(TfsProxyError, match="no signature"):
                await made.models.ready("c", WAIT_SECONDS)
        assert len(made.fleet.stacks) == 1

    play(tmp_path, scene, failing=ModelLoadError("model c has no signature"))


@pytest.mark.parametrize(
    ("most", "failing", "is_busy", "left"),
    [
        (2, None, [True, False], "ac"),
        (2, None, [True, True], "ab"),
        (None, MemoryError(), [False, False], "b"),
    ],
    ids=["the one that was idle longest makes room", "all are busy", "one that takes all memory by itself"],
)
def test_a_model_without_room_takes_that_of_idle_ones(
    tmp_path: Path, most: int | None, failing: Exception | None, is_busy: list[bool], left: str
) -> None:
    """Nobody's request is cut off for it; one other model makes room, and it is tried once more, and then refused."""

    async def scene(made: Scene) -> None:
        for name in "ab":
            await made.models.ready(name, WAIT_SECONDS)
        made.uses = [
            ModelUse(name, 1, used_at, in_use)
            for name, used_at, in_use in zip("ab", (1.0, 2.0), is_busy, strict=True)
        ]
        loading = made.models.ready("c", WAIT_SECONDS)
        if "c" in left:
            await loading
        else:
            with pytest.raises(NotEnoughResources):
                await loading
        assert made.loaded() == list(left)

    play(tmp_path, scene, most, failing)


USES = st.lists(
    st.builds(
        ModelUse,
        st.text("abcdef", min_size=1, max_size=4),
        st.integers(0, 50),
        st.floats(0, 9),
        st.booleans(),
    ),
    unique_by=lambda model: model.name,
)


@given(USES, st.integers(0, 200))
def test_those_that_leave_make_room_and_the_last_of_them_is_needed(
    models: list[ModelUse], missing_bytes: int
) -> None:
    leaving = least_recently_used(models, missing_bytes)
    given_back = [model.memory_bytes for name in leaving for model in models if model.name == name]
    may_leave = [model for model in models if not model.in_use]

    if not leaving:
        assert not may_leave or sum(model.memory_bytes for model in may_leave) < missing_bytes
        return
    assert sum(given_back) >= missing_bytes
    assert len(leaving) == 1 or sum(given_back[:-1]) < missing_bytes
    latest = max(model.used_at for model in may_leave if model.name in leaving)
    assert all(model.used_at >= latest for model in may_leave if model.name not in leaving)
