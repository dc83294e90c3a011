"""Commands to install something that messages print: each works as it is printed, and its message is gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fresh_environment import FreshEnvironment, interpreter, printed_command, write_houses

PYTHON = "3.12"
NEEDS_TENSORFLOW = (
    "tfs-proxy model-server --help",
    "timeout --signal TERM 60 tfs-proxy serve houses.tar.gz --port 0",
    "tfs-proxy pack houses.keras -o again.tar.gz",
)
NEEDS_MORE = (
    "SAGEMAKER_GUNICORN_WORKER_CLASS=gevent tfs-proxy check houses.tar.gz",
    "tfs-proxy transform --model houses.tar.gz --input in -o out --content-type text/csv --engine ray",
)

UNKNOWN_OP = """
import pathlib
import tensorflow as tf
upper = tf.function(lambda x: {"y": tf.strings.upper(x)}, input_signature=[tf.TensorSpec([None], tf.string, name="x")])
tf.saved_model.save(tf.Module(), "op/1", signatures=upper)
saved = pathlib.Path("op/1/saved_model.pb")
saved.write_bytes(saved.read_bytes().replace(b"StringUpper", b"TokenizeAbc"))
"""


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FreshEnvironment]:
    """An environment into which pip has installed the wheel without extras, and a model from another one."""
    python = interpreter(PYTHON)
    other = FreshEnvironment(python, tmp_path_factory.mktemp("other"))
    other.install(f"{wheel}[embedded]")
    write_houses(other)
    environment = FreshEnvironment(python, tmp_path_factory.mktemp("bare"))
    environment.run(f"pip install --quiet '{wheel}'")
    environment.write("in/house.csv", "rooms,area\n3,80\n")
    for name in ("houses.keras", "houses.tar.gz"):
        (environment.folder / name).write_bytes((other.folder / name).read_bytes())
    other.remove()
    yield environment
    environment.remove()


@pytest.mark.timeout(600)
def test_printed_commands_to_install_something_work(bare: FreshEnvironment) -> None:
    """TensorFlow first, which three messages ask for with the same command; OpenTelemetry last, while it serves."""
    (remedy,) = {printed_command(bare.attempt(command).stdout) for command in NEEDS_TENSORFLOW}
    assert "[embedded]" in remedy
    bare.run(remedy)
    bare.run("tfs-proxy pack houses.keras -o again.tar.gz")
    for command in NEEDS_MORE:
        bare.run(printed_command(bare.attempt(command).stdout))
        bare.run(command)
    assert (bare.folder / "out" / "house.csv.out").exists()
    bare.write("op.py", UNKNOWN_OP)
    bare.run("python op.py")
    bare.run(printed_command(bare.attempt("tfs-proxy serve op --port 0").stdout))
    bare.run("python -c 'import tensorflow_text'")

    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    with bare.serving("again.tar.gz", **traced):
        said = bare.said()
    bare.run(printed_command(said))
    with bare.serving("again.tar.gz", **traced):
        assert "not installed" not in bare.said()
