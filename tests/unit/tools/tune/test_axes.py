"""What is searched: by the machine, the model, and what the user has set."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tfs_proxy.data.capture.record import CapturedRequest
from tfs_proxy.model.report.served import Served, look_into
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.tune.axes import Space, TunedModel, space_of
from tfs_proxy.tools.tune.bodies import made_request, whole_request, workload_of
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.resources import Resources

SCRIPT = TunedModel(through_workers=True, has_script=True, batches=True)
PLAIN = TunedModel(through_workers=False, has_script=False, batches=True)
UNBATCHED = TunedModel(through_workers=False, has_script=False, batches=False)


def names(workload: TunedModel, environ: dict[str, str] | None = None, cores: int = 4) -> list[str]:
    return [axis.name for axis in space(workload, environ, cores).axes]


def space(workload: TunedModel, environ: dict[str, str] | None = None, cores: int = 4) -> Space:
    return space_of(workload, Settings.from_env(environ or {}, Resources(cores)))


def test_a_script_has_workers_and_a_model_alone_has_rest_threads() -> None:
    assert names(SCRIPT) == ["workers", "threads", "intra_op", "batching", "batch_size", "batch_timeout"]
    assert names(PLAIN) == ["rest_threads", "intra_op", "batching", "batch_size", "batch_timeout"]
    assert names(UNBATCHED) == ["rest_threads", "intra_op"]


@pytest.mark.parametrize(
    ("variable", "value", "gone"),
    [
        ("SAGEMAKER_GUNICORN_WORKERS", "3", {"workers"}),
        ("SAGEMAKER_TFS_MAX_BATCH_SIZE", "16", {"batch_size"}),
        ("SAGEMAKER_TFS_ENABLE_BATCHING", "true", {"batching"}),
        ("SAGEMAKER_TFS_ENABLE_BATCHING", "false", {"batching", "batch_size", "batch_timeout"}),
        ("SAGEMAKER_TFS_INTRA_OP_PARALLELISM", "2", {"intra_op"}),
    ],
)
def test_what_is_set_stays(variable: str, value: str, gone: set[str]) -> None:
    """A variable of the user's is not searched, is named, and stands in no environment block."""
    searched = space(SCRIPT, {variable: value})

    assert set(names(SCRIPT)) - {axis.name for axis in searched.axes} == gone
    assert searched.fixed == {variable: value}
    everything = itertools.product(*(range(len(axis.options)) for axis in searched.axes))
    assert all(variable not in searched.environment(point) for point in everything)


def test_rest_threads_are_set_by_their_own_variable() -> None:
    """The environment block of a point leaves the user's flags of the model server alone."""
    searched = space(UNBATCHED, {"SAGEMAKER_TFS_EXTRA_ARGS": "--a='b c'"})

    assert searched.environment((1, 0)) == {"TFS_PROXY_REST_THREADS": "8"}
    assert searched.environment(searched.default) == {}


@pytest.mark.parametrize(
    ("variable", "value"),
    [("SAGEMAKER_TFS_EXTRA_ARGS", "--rest_api_num_threads=3"), ("TFS_PROXY_REST_THREADS", "3")],
)
def test_rest_threads_of_the_user_are_not_searched(variable: str, value: str) -> None:
    searched = space(UNBATCHED, {variable: value})

    assert [axis.name for axis in searched.axes] == ["intra_op"]
    assert searched.fixed == {variable: value}


def test_sizes_without_batching_are_the_default() -> None:
    searched = space(PLAIN)

    assert searched.canonical((0, 0, 0, 2, 1)) == searched.default
    assert searched.environment((0, 0, 0, 2, 1)) == {}
    assert searched.environment((0, 0, 1, 1, 0)) == {
        "SAGEMAKER_TFS_ENABLE_BATCHING": "true",
        "SAGEMAKER_TFS_MAX_BATCH_SIZE": "32",
    }


@pytest.mark.parametrize("cores", [1, 2, 4, 96])
@pytest.mark.parametrize("workload", [SCRIPT, PLAIN, UNBATCHED])
def test_every_point_can_be_used(workload: TunedModel, cores: int) -> None:
    """What the search sets is what the settings understand, and no two options of an axis are the same."""
    searched = space(workload, cores=cores)
    for place, axis in enumerate(searched.axes):
        environments = [option.variables for option in axis.options]
        assert all(one != other for one, other in itertools.combinations(environments, 2))
        for number in range(len(axis.options)):
            point = tuple(number if each == place else 1 for each in range(len(searched.axes)))
            Settings.from_env(searched.environment(point), Resources(cores))


JSON = CapturedRequest(b'{"instances": [1.0]}', "application/json", None)
CSV = CapturedRequest(b"1.0\n", "text/csv", None)
SETTINGS = Settings.from_env({})


@pytest.fixture
def served(saved_models: Path, tmp_path: Path) -> Callable[[str, str], Served]:
    def look(model: str, script: str = "") -> Served:
        (tmp_path / model).symlink_to(saved_models / model)
        if script:
            (tmp_path / "code").mkdir()
            (tmp_path / "code" / "inference.py").write_text(script)
        return look_into(tmp_path, SETTINGS)

    return look


def test_a_request_is_whole() -> None:
    sent = whole_request(CapturedRequest(b"1,2", "text/csv", "tfs-model-name=a"), "127.0.0.1:80")

    head, _, body = sent.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /invocations HTTP/1.1",
        b"Host: 127.0.0.1:80",
        b"Content-Type: text/csv",
        b"X-Amzn-SageMaker-Custom-Attributes: tfs-model-name=a",
        b"Content-Length: 3",
    ]
    assert body == b"1,2"


def test_a_header_can_not_break_a_request() -> None:
    with pytest.raises(SettingsError, match="can't be a header"):
        whole_request(CapturedRequest(b"", None, "a\r\nb: c"), "h")


def test_a_model_alone_gets_json(served: Callable[..., Served]) -> None:
    model = served("half_plus_two")
    request = made_request(model)

    assert request == CapturedRequest(b'{"instances": [1.0]}', "application/json", None)
    assert workload_of(model, [request], SETTINGS).batches


def test_a_model_of_one_string_input(served: Callable[..., Served]) -> None:
    """Its tensor has another name in the graph than clients use; bodies have the signature's."""
    assert made_request(served("bytes")).body == b'{"instances": ["a"]}'


def test_a_script_gets_a_type_that_it_names(served: Callable[..., Served]) -> None:
    script = 'def handler(data, context):\n    if context.request_content_type == "text/csv":\n        pass\n'
    model = served("half_plus_two", script)

    assert made_request(model).content_type == "text/csv"
    workload = workload_of(model, [JSON], SETTINGS)
    assert workload.has_script
    assert workload.through_workers


def test_other_types_pass_the_workers(served: Callable[..., Served]) -> None:
    """nginx passes JSON to the model server; what must be converted is the workers' work."""
    assert workload_of(served("half_plus_two"), [JSON, CSV], SETTINGS).through_workers
