"""What is sent: requests as bytes, those that are made for a model, and what answers them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tfs_proxy.capture.record import CapturedRequest
from tfs_proxy.errors import SettingsError
from tfs_proxy.report.served import Served, look_into
from tfs_proxy.settings import Settings
from tfs_proxy.tuning.bodies import made_request, whole_request, workload_of

JSON = CapturedRequest(b'{"instances": [1.0]}', "application/json", None)
CSV = CapturedRequest(b"1.0\n", "text/csv", None)
SETTINGS = Settings.from_env({})


@pytest.fixture
def served(saved_models: Path, tmp_path: Path) -> Callable[[str, str], Served]:
    """A model of ours beside a script, if one is given."""

    def look(model: str, script: str = "") -> Served:
        (tmp_path / model).symlink_to(saved_models / model)
        if script:
            (tmp_path / "code").mkdir()
            (tmp_path / "code" / "inference.py").write_text(script)
        return look_into(tmp_path, SETTINGS)

    return look


def test_a_request_is_whole() -> None:
    """Head and body are ready for the wire, with the client's own headers."""
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
    """A line end in a captured attribute would begin another header."""
    with pytest.raises(SettingsError, match="can't be a header"):
        whole_request(CapturedRequest(b"", None, "a\r\nb: c"), "h")


def test_a_model_alone_gets_json(served: Callable[..., Served]) -> None:
    """One record in TF Serving's JSON, which nginx passes on to the model server."""
    model = served("half_plus_two")
    request = made_request(model)

    assert request == CapturedRequest(b'{"instances": [1.0]}', "application/json", None)
    assert workload_of(model, [request], SETTINGS).batches


def test_a_model_of_one_string_input(served: Callable[..., Served]) -> None:
    """Its tensor has another name in the graph than clients use; bodies have the signature's."""
    assert made_request(served("bytes")).body == b'{"instances": ["a"]}'


def test_a_script_gets_a_type_that_it_names(served: Callable[..., Served]) -> None:
    """What its text compares the type with is what it reads."""
    script = 'def handler(data, context):\n    if context.request_content_type == "text/csv":\n        pass\n'
    model = served("half_plus_two", script)

    assert made_request(model).content_type == "text/csv"
    workload = workload_of(model, [JSON], SETTINGS)
    assert workload.has_script
    assert workload.through_workers


def test_other_types_pass_the_workers(served: Callable[..., Served]) -> None:
    """nginx passes JSON to the model server; what must be converted is the workers' work."""
    assert workload_of(served("half_plus_two"), [JSON, CSV], SETTINGS).through_workers
