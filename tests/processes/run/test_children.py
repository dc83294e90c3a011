"""How a model server that ends while it loads is told, with a real process in its place."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from tfs_proxy.run.children import Deaths
from tfs_proxy.run.front import FrontChildren
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.host.workspace import run_workspace
from tfs_proxy.run.many_models.model_life import load_failure
from tfs_proxy.run.process import Backoff, ProcessSpec
from tfs_proxy.run.readiness import Readiness
from tfs_proxy.run.stack_children import StackChildren
from tfs_proxy.values.deployment import BootFailure
from tfs_proxy.values.errors import ModelLoadError, NotEnoughResources, ProcessGaveUp, ScriptLoadError
from tfs_proxy.values.layout import Workspace


@pytest.fixture
def run() -> Iterator[Workspace]:
    with run_workspace(None) as run:
        yield run


def failed_boot(run: Workspace, script: str, failure: BootFailure | None) -> ScriptLoadError:
    """The error of a run that serves when gunicorn, in whose place this shell script stands, gives up."""

    async def serve() -> None:
        readiness = Readiness(Heartbeats(1.0))
        readiness.begin_serving()
        readiness.heartbeats.failure = failure
        children = StackChildren(readiness, run)
        argv = ("/bin/sh", "-c", script)
        spec = ProcessSpec("gunicorn", argv, dict(os.environ), backoff=Backoff(tries=0))
        children.start_workers(spec)
        await children.watch_during(asyncio.sleep(60))

    with pytest.raises(ScriptLoadError) as raised:
        asyncio.run(serve())
    return raised.value


def failed_start(run: Workspace, script: str) -> ModelLoadError:
    """The error of a start whose model server is this shell script."""

    async def start() -> None:
        children = StackChildren(Readiness(Heartbeats(1.0)), run)
        argv = ("/bin/sh", "-c", script)
        children.start_model_server(ProcessSpec("the model server", argv, dict(os.environ)))
        await children.watch_during(asyncio.sleep(60))

    with pytest.raises(ModelLoadError) as raised:
        asyncio.run(start())
    return raised.value


def test_a_death_is_noticed_however_rare_the_looks_are(run: Workspace) -> None:
    """While nothing happens they become rare; a child that ends wakes the watch."""

    async def serve() -> None:
        children = FrontChildren(Deaths(), lambda: None, lambda _event: None)
        children.look_every(3600)
        spec = ProcessSpec("nginx", ("/bin/sh", "-c", "exit 3"), dict(os.environ), backoff=Backoff(tries=0))
        watching = asyncio.create_task(children.watch_during(asyncio.sleep(30)))
        await asyncio.sleep(0)
        children.start_nginx(spec)
        await watching

    with pytest.raises(ProcessGaveUp, match="nginx ended with exit status 3"):
        asyncio.run(serve())


def test_one_that_the_kernel_kills_says_so(run: Workspace) -> None:
    """SIGKILL while it loads is a lack of memory, for which a load of one of many models is 507."""
    error = failed_start(run, "kill -KILL $$")

    assert "the model server ended with SIGKILL while loading, most likely for lack of memory" in str(error)
    assert error.ended_with == -9
    assert isinstance(load_failure(error), NotEnoughResources)


def test_one_that_ends_by_itself_has_its_exit_status_and_last_words(run: Workspace) -> None:
    """Which are no lack of memory by themselves."""
    error = failed_start(run, "echo error: no such flag; exit 3")

    assert str(error).endswith("exit status 3 while loading. Its last output: error: no such flag")
    assert error.ended_with == 3
    assert not isinstance(load_failure(error), NotEnoughResources)


def test_workers_that_cannot_boot_say_why(run: Workspace) -> None:
    """A client reads the sentence, and has no log: it does not send there."""
    failure = BootFailure("inference.py can't be imported: KeyError: 'TABLE' (line 3).", "Traceback")

    assert str(failed_boot(run, "exit 3", failure)) == failure.text


def test_a_gunicorn_that_ends_before_its_workers_has_its_last_words(run: Workspace) -> None:
    """No worker could send the reason."""
    error = failed_boot(run, "echo ModuleNotFoundError: No module named x; exit 4", None)

    assert str(error) == (
        "no worker can start: gunicorn ended with exit status 4. "
        "Its last output: ModuleNotFoundError: No module named x"
    )
