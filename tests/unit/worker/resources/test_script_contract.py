"""POST /invocations with the richer contract: tensors, responses, streams, async functions, init and close."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import gates
from tfs_proxy.serving.script import health
from unit.worker.resources.conftest import MakeFront

PASS = "\ndef output_handler(response, context): return response.content, 'application/json'\n"


def test_a_prepared_request_names_its_target(make_front: MakeFront) -> None:
    """Model, version and signature of a Request win over the client's; another model has none of them."""
    front = make_front(
        "import tfs_proxy\n"
        "def input_handler(data, context):\n"
        "    return tfs_proxy.Request({'x': [1.0]}, model_name='other', version=3)\n" + PASS
    )

    front.post("x", X_Amzn_SageMaker_Custom_Attributes="tfs-model-name=m,tfs-model-label=a")

    target = front.upstream.calls[0].target
    assert (target.model, target.version, target.label) == ("other", 3, None)


def test_tensors_are_for_predict(make_front: MakeFront) -> None:
    """A request for classify is refused with a sentence if the script makes tensors."""
    front = make_front("def input_handler(data, context): return {'x': [1.0]}")

    assert "predict" in front.refusal(400, "x", X_Amzn_SageMaker_Custom_Attributes="tfs-method=classify")


def test_predict_from_a_handler(make_front: MakeFront) -> None:
    """context.predict takes and gives arrays, by name of model, version and signature, from threads, too."""
    front = make_front(
        "import json\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def handler(data, context):\n"
        "    with ThreadPoolExecutor(8) as pool:\n"
        "        c = pool.map(lambda x: float(context.predict({'z': [x]}, signature='other')['y'][0]), range(9))\n"
        "    a = context.predict({'x': [1.0]})\n"
        "    b = context.predict([3.0], model_name='other', label='best', timeout_seconds=1.5)\n"
        "    return json.dumps([a['y'].tolist(), b['y'].tolist(), context.models, context.signature.name, sum(c)])\n"
    )

    result = front.post("x", X_Amzn_SageMaker_Custom_Attributes="tfs-model-version=1")

    assert result.json == [[2.5], [2.5], {"half": [1]}, "serving_default", 22.5]
    *of_threads, first, second = front.upstream.calls
    assert [call.target.signature for call in of_threads] == ["other"] * 9
    assert (first.target.model, first.target.version) == ("half", 1)
    assert (second.target.model, second.target.version, second.target.label) == ("other", None, "best")
    assert second.timeout_seconds == 1.5


def test_errors_of_predict(make_front: MakeFront) -> None:
    """Uncaught, an error of the model server is the answer; a script may catch it by its class."""
    refusing = {"status": 429, "body": b'{"error": "full"}'}
    uncaught = make_front("def handler(data, context): return context.predict([1.0])", **refusing)
    caught = make_front(
        "from tfs_proxy.values.errors import UpstreamRefused\n"
        "def handler(data, context):\n"
        "    try:\n        context.predict([1.0])\n"
        "    except UpstreamRefused as error:\n        return str(error.status)\n",
        **refusing,
    )
    wrong = make_front("def handler(data, context): return context.predict({'y': 1})")

    assert (uncaught.post("x").status_code, uncaught.post("x").json) == (429, {"error": "full"})
    assert caught.post("x").text == "429"
    assert "context.predict: 'y' is not an input" in wrong.refusal(500, "x")


def test_default_halves_without_a_batch_dimension(make_front: MakeFront) -> None:
    """The script's arrays have the model's shape, and its outputs are one record of the answer."""
    front = make_front(
        "def handler(data, context):\n"
        "    inputs = context.default_input(data)\n"
        "    assert inputs['x'].shape == ()\n"
        "    return context.default_output(context.predict(inputs))\n",
        body=b'{"outputs": 2.5}',
    )
    front.takes(x=("DT_FLOAT", ()))

    assert front.post("4.0\n", Content_Type="text/csv", Accept="text/csv").text == "2.5\n"
    assert front.upstream.calls[0].json == {"inputs": {"x": 4.0}}


def test_response_without_a_status_keeps_the_model_servers(make_front: MakeFront) -> None:
    """A status that the script names wins; without one it is the model server's."""
    half = "import tfs_proxy\ndef input_handler(data, context): return {'x': [1.0]}\n"
    kept = make_front(half + "def output_handler(r, c): return tfs_proxy.Response('no')", status=429)
    own = make_front(
        half + "def output_handler(r, c): return tfs_proxy.Response('ok', status=200)", status=429
    )

    assert kept.post("x").status_code == 429
    assert own.post("x").status_code == 200


@pytest.mark.parametrize(
    "response",
    [
        "status=99",
        "status=600",
        "headers={'X': 'a\\r\\nb'}",
        "headers={'X\\n': 'a'}",
        "headers={'X': 'é'}",
        "headers={'X': 3}",
        "headers={'Connection': 'close'}",
        "headers={'transfer-encoding': 'chunked'}",
        "headers={'Content-Length': '3'}",
        "headers={'X-Accel-Redirect': '/ping'}",
        "headers={'X-Amzn-SageMaker-Custom-Attributes': 'a' * 1025}",
    ],
)
def test_responses_that_can_not_be_sent(make_front: MakeFront, response: str) -> None:
    """Line ends, the server's own headers and odd statuses are refused in the script's call."""
    front = make_front(f"import tfs_proxy\ndef handler(d, c): return tfs_proxy.Response('x', {response})")

    assert front.refusal(500, "x")


@pytest.mark.parametrize(
    "handler",
    [
        "def handler(data, context):\n    yield 'a'\n    yield ''\n    yield b'b'",
        "def handler(data, context): return iter(['a', b'b']), 'text/plain'",
        "async def handler(data, context):\n    yield 'a'\n    yield b'b'",
        "async def made():\n    yield 'ab'\nasync def handler(data, context): return made(), 'text/plain'",
        "def handler(data, context): return tfs_proxy.Response(map(str, 'ab'), 'text/plain')",
    ],
)
def test_streams(make_front: MakeFront, handler: str) -> None:
    """Generators and iterators, async ones too, are streamed, past nginx's buffers."""
    front = make_front("import tfs_proxy\n" + handler)

    result = front.post("x", Accept="text/plain")

    assert (result.text, result.headers["content-type"]) == ("ab", "text/plain")
    assert result.headers["x-accel-buffering"] == "no"
    assert "content-length" not in result.headers


def test_an_error_before_the_first_piece(make_front: MakeFront) -> None:
    front = make_front(
        "import tfs_proxy\ndef handler(data, context):\n    raise tfs_proxy.HTTPError(422, 'no')\n    yield 'a'"
    )

    assert front.refusal(422, "x") == "no"


@pytest.mark.parametrize(
    "own",
    [
        "health = 3",
        "from os import stat as health",
        "def health(): ...",
        "def health(patient): raise ValueError",
        "from os import close\ndef init(): raise ValueError",
    ],
)
def test_another_function_of_the_name_is_left_alone(
    make_front: MakeFront, caplog: pytest.LogCaptureFixture, own: str
) -> None:
    """Only a function of the script's own whose one argument is the context is called; a line says so."""
    front, name = (
        make_front(f"{own}\ndef handler(data, context): return 'x'"),
        "init" if "init" in own else "health",
    )

    assert (front.client.app.health, front.post("x").text) == (None, "x")
    assert f"inference.py: its {name} is not called, because it is not its own {name}(context)" in caplog.text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("assert context.predict([1.0])['y'].tolist() == [2.5]", ""),
        ("return context.models['half'] == (2,)", "returned False"),
        ("import sys; sys.exit('no\\ud800 line\\n' + 'x' * 2000)", "failed: SystemExit: no\\ud800 line xxx"),
        ("import time; time.sleep(1)", "did not return within 5 s"),
    ],
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_what_health_says(
    make_front: MakeFront, monkeypatch: pytest.MonkeyPatch, kind: str, body: str, said: str
) -> None:
    """One line of bounded length; a call that still hangs at the next question has failed again."""
    monkeypatch.setattr(health, "ANSWER_SECONDS", 0.2)
    app = make_front(f"{kind} health(context): {body}\ndef handler(data, context): return 'x'").client.app

    fault = app.health.once()
    assert (said in fault, bool(fault), len(fault) <= 1000) == (True, bool(said), True)
    if "within" in said:
        app.health.ask()
        assert app.health.take() == fault


def test_a_health_that_could_not_begin_has_not_failed(
    make_front: MakeFront, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A handler that keeps the event loop from everything else keeps a coroutine from its beginning."""
    monkeypatch.setattr(health, "ANSWER_SECONDS", 0.01)
    front = make_front(
        f"{gates.SCRIPT}\nasync def handler(data, context):\n    hold(data.read().decode())\n    return 'x'\n"
        "async def health(context): return False\n"
    )
    asked = front.client.app.health
    with ThreadPoolExecutor(1) as pool, gates.gate(tmp_path / "held") as held:
        answer = pool.submit(front.post, held.mark())
        held.wait_for()
        asked.ask()
        time.sleep(0.05)
        asked.ask()
        assert asked.take() is None
        held.open()
        assert answer.result().text == "x"
