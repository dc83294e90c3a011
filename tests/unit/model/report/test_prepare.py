"""What is prepared of an archive: inter-op threads of the model server, and labels of its versions."""

from pathlib import Path

import pytest

from support.archives import SAVED_MODEL, pack
from tfs_proxy.model.report.prepare import (
    CALLERS_THREAD,
    MOST_NODES,
    MOST_WEIGHT_BYTES,
    Prepared,
    prepare,
    with_graph_threads,
)
from tfs_proxy.model.report.served import look_into
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.resources import Resources
from tfs_proxy.wire.protobuf_writer import field


def prepared(folder: Path, settings: Settings) -> Prepared:
    archive = pack(folder / "m.tar.gz", {"m/2/saved_model.pb": SAVED_MODEL})
    (folder / "w").mkdir()
    return prepare(str(archive), settings, Workspace(folder / "w"), {})


def test_labels_of_many(tmp_path: Path) -> None:
    """A label is refused if no version has it, but one archive of many need not have that version."""
    settings = Settings.from_env({"SAGEMAKER_TFS_VERSION_LABELS": "stable=1"})

    with pytest.raises(SettingsError, match="no model has version 1; existing versions: 2"):
        prepared(tmp_path, settings)

    (tmp_path / "one").mkdir()
    assert prepared(tmp_path / "one", settings.for_one_of_many("m")).models[0].versions == (2,)


def write_model(
    folder: Path, *, nodes: int = 1, in_function: int = 1, op: str = "MatMul", weights: int = 0
) -> None:
    """A SavedModel with so many nodes in its graph and in a function of it, and so many bytes of variables."""
    node = field(1, b"name") + field(2, op.encode())
    function = field(1, field(3, node) * in_function)
    graph = field(1, node) * nodes + field(2, function)
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(field(2, field(2, graph)))
    with (folder / "variables/variables.data-00000-of-00001").open("wb") as file:
        file.truncate(weights)


def chosen(root: Path, **environ: str) -> tuple[int | None, str]:
    """Inter-op threads for what is served from ``root``, and the reason."""
    settings = Settings.from_env(environ, Resources(2))
    settings = with_graph_threads(settings, look_into(root, settings))
    return settings.inter_op_parallelism, settings.inter_op_reason


def test_a_small_graph_runs_on_its_requests_thread(tmp_path: Path) -> None:
    """Nodes of functions count, and so do all models and versions."""
    write_model(tmp_path / "a/1", nodes=3, in_function=4)
    write_model(tmp_path / "b/2", nodes=1, in_function=0)

    assert chosen(tmp_path) == (CALLERS_THREAD, "a graph of 7 nodes and 0.0 MB runs on its request's thread")


@pytest.mark.parametrize(
    ("nodes", "in_function", "op", "weights", "reason"),
    [
        (MOST_NODES + 1, 0, "MatMul", 0, "a graph has more than 1000 nodes"),
        (1, MOST_NODES, "MatMul", 0, "a graph has more than 1000 nodes"),
        (1, 1, "MatMul", MOST_WEIGHT_BYTES, "a graph has 4.2 MB of weights"),
        (1, 1, "Conv2D", 0, "a graph convolves or decodes pictures"),
        (1, 1, "DecodeJpeg", 0, "a graph convolves or decodes pictures"),
    ],
)
def test_a_graph_that_may_compute_long_keeps_the_pool(
    tmp_path: Path, nodes: int, in_function: int, op: str, weights: int, reason: str
) -> None:
    """One of several models is enough."""
    write_model(tmp_path / "small/1")
    write_model(tmp_path / "other/1", nodes=nodes, in_function=in_function, op=op, weights=weights)

    assert chosen(tmp_path) == (None, reason)


@pytest.mark.parametrize(
    ("environ", "threads"),
    [
        ({"SAGEMAKER_TFS_ENABLE_BATCHING": "true"}, None),
        ({"SAGEMAKER_BATCH": "true"}, None),
        ({"SAGEMAKER_TFS_INTER_OP_PARALLELISM": "0"}, 0),
        ({"SAGEMAKER_TFS_INTER_OP_PARALLELISM": "3"}, 3),
        ({"SAGEMAKER_TFS_INTER_OP_PARALLELISM": "auto"}, CALLERS_THREAD),
    ],
)
def test_batches_keep_the_pool_and_a_number_that_is_set_stays(
    tmp_path: Path, environ: dict[str, str], threads: int | None
) -> None:
    """Batches are slower without it, by 4 to 5 %."""
    write_model(tmp_path / "small/1")

    assert chosen(tmp_path, **environ)[0] == threads
