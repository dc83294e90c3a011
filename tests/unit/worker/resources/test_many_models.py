"""One app for many models: which model's app answers, and who knows when the last request has ended."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import falcon.testing
import pytest

from support.fake_upstream import Call, FakeUpstream
from support.waiting import wait_until
from tfs_proxy.run.many_models.gates import HttpGates
from tfs_proxy.run.many_models.shared_mode import CommonModel
from tfs_proxy.serving.upstream.interface import ModelAnswer
from tfs_proxy.values.deployment import Deployment, Instance
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.signature import PREDICT_METHOD, Signature, TensorSpec
from tfs_proxy.wire.header_names import SERVED_NAME
from tfs_proxy.worker.app import ContainerApp, create_app
from tfs_proxy.worker.many_models import ManyModelsApp

INSTANCE = Instance(index=0, rest_port=8501, grpc_port=9000, grpc_socket="/run/tfs0.sock")
SPEC = TensorSpec("x", "DT_FLOAT", (None,))
SIGNATURE = Signature("serving_default", PREDICT_METHOD, {"x": SPEC}, {"y": SPEC})
SECONDS = 60.0
BODY = b'{"instances": [1.0]}'


@dataclass
class Run:
    """The workspaces of models, the app, and a model server that says the name of the model it is asked for."""

    root: Path
    held: threading.Event = field(default_factory=threading.Event)
    asked: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held.set()
        self.gates = HttpGates(self.root)
        self.gates.make_folders()
        self.upstream = FakeUpstream({"serving_default": SIGNATURE}, self._answer, INSTANCE)
        app = ManyModelsApp(self.gates.workspaces, self._create, self.forgotten.append)
        self.client = falcon.testing.TestClient(app)
        self.homes = 0

    def load(self, name: str) -> CommonModel:
        """Let the app serve a model of this name, in a workspace of its own."""
        self.homes += 1
        workspace = Workspace(self.root / f"home{self.homes}")
        workspace.root.mkdir()
        deployment = Deployment(name, {name: (self.homes,)}, (INSTANCE,), None, (), 1000, SECONDS)
        model = CommonModel(workspace, deployment)
        model.publish()
        self.gates.share(name, (name,), workspace.root)
        return model

    def ask(self, name: str) -> falcon.testing.Result:
        """A request that nginx sends for this model."""
        headers = {SERVED_NAME: name, "Content-Type": "application/json"}
        return self.client.simulate_post("/invocations", body=BODY, headers=headers)

    def _create(self, deployment: Deployment, _workspace: Workspace) -> ContainerApp:
        return create_app(deployment, self.upstream, ping=lambda: (200, b""), owns_upstream=False)

    def _answer(self, call: Call) -> ModelAnswer:
        self.asked.append(call.target.model)
        assert self.held.wait(SECONDS)
        return ModelAnswer(200, f'{{"predictions": ["{call.target.model}"]}}'.encode())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """An app without a model."""
    return Run(tmp_path)


def test_each_request_is_answered_by_the_app_of_its_model(run: Run) -> None:
    """Which is made once."""
    for name in ("a", "b"):
        run.load(name)

    answers = [run.ask(name).json["predictions"] for name in ("a", "b", "a")]

    assert answers == [["a"], ["b"], ["a"]]
    assert run.forgotten == ["a", "b"]


@pytest.mark.parametrize("leave", [True, False], ids=["that has gone", "that was never there"])
def test_a_model_that_is_not_there_is_a_503(run: Run, leave: bool) -> None:
    """nginx has found its gate open a moment before."""
    if leave:
        model = run.load("a")
        assert run.ask("a").status_code == 200
        asyncio.run(model.withdraw(SECONDS))

    answer = run.ask("a")

    assert (answer.status_code, answer.json) == (503, {"error": "model a is being unloaded"})


def test_a_model_that_is_loaded_again_has_an_app_of_its_own(run: Run) -> None:
    """Nothing known of the one before is used, signatures included."""
    first = run.load("a")
    run.ask("a")
    asyncio.run(first.withdraw(SECONDS))
    run.load("a")

    assert run.ask("a").status_code == 200
    assert run.forgotten == ["a", "a"]


def test_a_model_is_in_use_until_its_requests_have_ended(run: Run) -> None:
    """Who withdraws it waits for them, and not for those of other models."""
    model, other = run.load("a"), run.load("b")
    run.held.clear()
    with ThreadPoolExecutor(2) as pool:
        request = pool.submit(run.ask, "a")
        wait_until(lambda: run.asked == ["a"], SECONDS, "the request is under way")
        assert model.in_use()
        assert not other.in_use()
        asyncio.run(other.withdraw(SECONDS))
        leaving = pool.submit(asyncio.run, model.withdraw(SECONDS))
        deployment = Workspace(run.root / "home1").deployment
        wait_until(lambda: not deployment.exists(), SECONDS, "no more requests begin")
        assert run.ask("a").status_code == 503
        assert not leaving.done()
        run.held.set()
        leaving.result(SECONDS)
        assert request.result(SECONDS).status_code == 200
    assert not model.in_use()


def test_withdrawing_ends_at_its_limit(run: Run) -> None:
    """A request that hangs holds up no unload for ever."""
    model = run.load("a")
    run.held.clear()
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(run.ask, "a")
        wait_until(lambda: run.asked == ["a"], SECONDS, "the request is under way")
        asyncio.run(model.withdraw(0.05))
        assert not request.done()
        run.held.set()
