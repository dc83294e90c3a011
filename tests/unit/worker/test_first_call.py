"""Warm-up of a worker: requests to its own model before the first of a client."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from support.fake_upstream import Call, FakeUpstream
from support.warmup_files import recorded, warm_up_with
from tfs_proxy.data.formats.npy import read_npy
from tfs_proxy.values.deployment import BodyLimits, Deployment, TimeLimits
from tfs_proxy.worker import first_call


class App:
    """An application that keeps its bodies."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        assert (environ["PATH_INFO"], environ["CONTENT_TYPE"]) == ("/invocations", "application/x-npy")
        self.bodies.append(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        start_response("200 OK", [])
        return [b""]


def warmed(folder: Path, app: App | None) -> list[Call]:
    """The calls of the model server itself, when the worker's warm-up has ended."""
    upstream = FakeUpstream()
    deployment = Deployment(
        *("half", {"half": (1,)}, (), None, (), BodyLimits(10), TimeLimits(5.0)),
        graph_folders={"half": str(folder)},
    )
    call = first_call.begin(deployment, upstream, lambda _target: True, app)
    if call is not None:
        call.join()
    return upstream.calls


def test_numbers_go_the_way_of_requests(tmp_path: Path) -> None:
    warm_up_with(tmp_path, recorded("x", [[1.0, 2.0]]))
    app = App()

    assert warmed(tmp_path, app) == []
    assert [read_npy(body).tolist() for body in app.bodies] == [[[1.0, 2.0]]] * first_call.CALLS


def test_strings_and_models_with_a_script_go_straight_to_the_model_server(tmp_path: Path) -> None:
    """A script might not expect the request; strings have no npy body."""
    numbers, strings = tmp_path / "numbers", tmp_path / "strings"
    for folder, rows in ((numbers, [[1.0]]), (strings, [b"text"])):
        folder.mkdir()
        warm_up_with(folder, recorded("x", rows))
    app = App()

    assert len(warmed(numbers, None)) == len(warmed(strings, app)) == first_call.CALLS
    assert app.bodies == []


def test_a_damaged_file_is_the_model_servers_to_report(tmp_path: Path) -> None:
    """The worker serves all the same, without a call."""
    warm_up_with(tmp_path)

    assert warmed(tmp_path, App()) == []


def test_a_model_without_requests_is_not_asked(tmp_path: Path) -> None:
    """Its inputs are not known."""
    app = App()

    assert warmed(tmp_path, app) == []
    assert app.bodies == []
