"""The last line of a start: where it listens, and a command that works when pasted; and no noise before it."""

import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from support.archives import pack, stand_in_words
from support.stack import Stack, serving
from tfs_proxy.model.openapi.examples import PNG
from tfs_proxy.model.report.first_request import TRY, command_in
from tfs_proxy.model.report.prepare import prepare
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.layout import Workspace

SERVED = (
    "half_plus_two",
    "multi_io",
    "types",
    "scalar",
    "matrix",
    "bytes",
    "regress_classify",
    "mixed_batch",
    "bare",
    "classifier",
    "parsed",
    "half_plus_three",
    "versions",
    "picture",
    "special",
    "picture_base64",
)
NOISE = (
    "Starting gunicorn",
    "Listening at",
    "Using worker",
    "Booting worker",
    "absl::InitializeLog",
    "cpu_feature_guard",
    "To enable the following instructions",
)


def last_line(stack: Stack) -> str:
    """What it has said last, when it was ready."""
    stack.wait_for_log(TRY)
    return stack.messages[-1]


def status_of(command: str) -> str:
    """The HTTP status that a pasted command gets."""
    pasted = f"{command} --silent --show-error --output /dev/null --write-out '%{{http_code}}'"
    done = subprocess.run(
        ["/bin/bash", "-c", pasted], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.tensorflow
@pytest.mark.parametrize("model", SERVED)
def test_each_model_answers_the_command_that_is_made_for_it(
    served: Stack, saved_models: Path, tmp_path: Path, model: str
) -> None:
    """Whatever the types and shapes of its inputs, the status is 200; pictures are the reader's own FILE."""
    prepared = prepare(str(saved_models / model), Settings.from_env({}), Workspace(tmp_path), {})
    command = prepared.first_request.command(f"http://{served.host}:{served.port}")
    picture = tmp_path / "picture.png"
    picture.write_bytes(PNG)

    named, header = f"tfs-model-name={model}", "X-Amzn-SageMaker-Custom-Attributes: "
    if header in command:
        command = command.replace(header, f"{header}{named},")
    else:
        command = f"{command} -H '{header}{named}'"
    assert status_of(command.replace("FILE", str(picture))) == "200"


@pytest.mark.tensorflow
def test_the_command_of_the_last_line_is_answered(saved_models: Path) -> None:
    """As it is pasted; and TensorFlow and gunicorn have not said how they start."""
    with serving(str(saved_models / "multi_io")) as stack:
        line = last_line(stack)
        url = f"http://{stack.host}:{stack.port}"
        command = command_in(line, url)

        assert line.startswith(f"tfs-proxy: ready: {url}, for this machine alone{TRY}curl ")
        assert command is not None
        assert status_of(command) == "200"
        assert not [word for word in NOISE if word in stack.log]


@pytest.mark.tensorflow
def test_with_keys_it_brings_one(saved_models: Path, tmp_path: Path) -> None:
    """The first of their file, which the shell reads: the line shows none."""
    keys = tmp_path / "the keys"
    keys.write_text(f"# of callers\n\nalice  {'a' * 32}\nbob {'b' * 32}\n")
    with serving(str(saved_models / "classifier"), env={"TFS_PROXY_API_KEYS": str(keys)}) as stack:
        command = command_in(last_line(stack), f"http://{stack.host}:{stack.port}")
        assert command is not None
        assert "aaaa" not in command
        assert status_of(command) == "200"


@pytest.mark.tensorflow
def test_the_noise_is_there_at_debug(saved_models: Path) -> None:
    """Who looks for a fault of TensorFlow or gunicorn sees all that they say."""
    env = {"SAGEMAKER_GUNICORN_LOGLEVEL": "debug"}
    with serving(str(saved_models / "half_plus_two"), env=env) as stack:
        stack.wait_for_log(TRY)
        assert [word for word in NOISE if word not in stack.log] == []


def test_every_address_is_called_localhost(tmp_path: Path) -> None:
    """0.0.0.0 is not an address for a client; the command for a model that is not read asks for its metadata."""
    with closing(Stack(*stand_in_words(tmp_path), host="0.0.0.0")) as stack:
        line = last_line(stack)

    url = f"http://localhost:{stack.port}"
    assert (
        line
        == f"tfs-proxy: ready: {url}, for whoever reaches this machine{TRY}curl {url}/v1/models/m/metadata"
    )


@pytest.mark.slow
def test_a_pipeline_suggests_the_first_stages_request_at_its_own_port(tmp_path: Path) -> None:
    """The stages' own ports stay out of it."""
    script = (
        "def model_fn(model_dir): ...\n"
        "def input_fn(data, content_type):\n"
        "    if content_type != 'text/csv': raise ValueError(content_type)\n"
        "    return data\n"
        "def predict_fn(data, model): return data\n"
        "def output_fn(prediction, accept): return prediction, 'text/csv'\n"
    )
    stage = str(pack(tmp_path / "stage.tar.gz", {"code/inference.py": script}))
    with serving(stage, stage) as stack:
        ready = "tfs-proxy: ready: "
        stack.wait_for_log(f"{ready}http://127.0.0.1:{stack.port}")
        # The lines of its stages come through their own pipes, perhaps later.
        line = next(message for message in stack.messages if message.startswith(ready))

    url = f"http://127.0.0.1:{stack.port}"
    assert line == (
        f"tfs-proxy: ready: {url}, for this machine alone{TRY}curl -H 'Content-Type: text/csv' --data-binary @FILE {url}/invocations"
    )
