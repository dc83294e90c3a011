"""The context that a script's functions see."""

from typing import Any

import pytest

from support.fake_upstream import FakeUpstream
from tfs_proxy.dataplane.plane import DataPlane
from tfs_proxy.deployment import Instance
from tfs_proxy.script.context import Context, ScriptRequest, WorkerModels
from tfs_proxy.signature import Target

INSTANCE = Instance(index=0, rest_port=8501, grpc_port=9000, grpc_socket="/run/tfs0.sock")


class FakeChannels:
    """Counts how often a channel was asked for."""

    def __init__(self) -> None:
        self.asked: list[Instance] = []

    def get(self, instance: Instance) -> Any:
        self.asked.append(instance)
        return "channel"


def context(target: Target | None = None, **headers: Any) -> tuple[Context, FakeChannels]:
    channels = FakeChannels()
    request = ScriptRequest(target or Target("half"), b"", **headers)
    worker = WorkerModels(DataPlane(FakeUpstream()), {"half": (1, 2)}, "half", 60.0, channels=channels)  # type: ignore[arg-type]
    return Context(request, INSTANCE, worker), channels


def test_defaults() -> None:
    """Without headers, model, method and types are filled all the same."""
    seen, _ = context()

    assert seen.model_name == "half"
    assert seen.model_version is None
    assert seen.method == "predict"
    assert seen.rest_uri == "http://localhost:8501/v1/models/half:predict"
    assert seen.grpc_port == "9000"
    assert seen.custom_attributes is None
    assert seen.request_content_type == "application/json"
    assert seen.accept_header == "application/json"
    assert seen.content_length is None
    assert seen.timeout == 60.0


def test_headers_are_raw() -> None:
    """Headers arrive as the client sent them."""
    seen, _ = context(
        content_type="text/csv; charset=utf-8", accept="*/*", custom_attributes="a=b", content_length=7
    )

    assert seen.request_content_type == "text/csv; charset=utf-8"
    assert seen.accept_header == "*/*"
    assert seen.custom_attributes == "a=b"
    assert seen.content_length == 7


@pytest.mark.parametrize(
    ("target", "path", "version"),
    [
        (Target("m", version=3), "/v1/models/m/versions/3:predict", "3"),
        (Target("m", label="canary"), "/v1/models/m/labels/canary:predict", None),
        (Target("m", method="regress"), "/v1/models/m:regress", None),
    ],
)
def test_rest_uri(target: Target, path: str, version: str | None) -> None:
    """Version, label and method are part of the URI; the version is text, as AWS gives it."""
    seen, _ = context(target)

    assert seen.rest_uri == f"http://localhost:8501{path}"
    assert seen.model_version == version


def test_replace_as_of_a_named_tuple() -> None:
    """A copy has the new values, the channel's too; other names are refused, and the old one stays."""
    seen, channels = context()

    other = seen._replace(accept_header="text/csv", channel="mine")

    assert (other.accept_header, other[5], other.model_name) == ("text/csv", "mine", "half")
    assert (seen.accept_header, channels.asked) == ("application/json", [])
    with pytest.raises(ValueError, match=r"unexpected field names: \['accepts'\]"):
        seen._replace(accepts="text/csv")


def test_channel_is_lazy() -> None:
    """No channel is opened before one is asked for, and it leads to the same instance."""
    seen, channels = context()
    assert "model_name='half'" in repr(seen)
    assert channels.asked == []

    assert seen.channel == "channel"

    assert channels.asked == [INSTANCE]


def test_like_a_namedtuple() -> None:
    """It unpacks, indexes and turns into a dict in the order of AWS's namedtuple."""
    seen, _ = context()

    name, version, method, *_rest = seen

    assert (name, version, method) == ("half", None, "predict")
    assert seen[0] == "half"
    assert seen[:3] == ("half", None, "predict")
    assert list(seen._asdict()) == list(seen._fields)
    assert len(seen) == 11
    assert seen._fields[5] == "channel"


def test_headers_and_ids() -> None:
    """Headers are found in any case; the inference id is one of them, and goes into the log's records."""
    seen, _ = context(headers=lambda: {"X-AMZN-SAGEMAKER-INFERENCE-ID": "abc", "X-OWN": "1"})

    assert seen.headers["x-own"] == seen.headers["X-Own"] == "1"
    assert seen.inference_id == "abc"
    assert seen.logger.extra == {"model_name": "half", "inference_id": "abc"}
    assert seen.models == {"half": (1, 2)}
    assert context()[0].inference_id is None


@pytest.mark.parametrize(
    ("given", "text"), [("a=1", "a=1"), ({"a": "1", "b": "x y"}, "a=1,b=x y"), (["a", "b"], "a,b"), ("", "")]
)
def test_custom_attributes(given: Any, text: str) -> None:
    """Text, a mapping, or parts."""
    seen, _ = context()

    seen.set_custom_attributes(given)

    assert seen.reply_attributes == text


@pytest.mark.parametrize("given", ["a" * 1025, "a\r\nb", "\u00e9", {"a": "\n"}])
def test_custom_attributes_that_can_not_be_sent(given: Any) -> None:
    """At most 1024 visible ASCII characters."""
    seen, _ = context()

    with pytest.raises(ValueError, match="custom attributes"):
        seen.set_custom_attributes(given)
