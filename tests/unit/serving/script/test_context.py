"""The context of a script's functions."""

from typing import Any

import pytest

from support.deployments import INSTANCE, deployment
from support.fake_upstream import FakeUpstream
from tfs_proxy.serving.plane import DataPlane
from tfs_proxy.serving.script.context import Context, ScriptRequest, WorkerModels
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.signature import Target


class FakeChannels:
    def __init__(self) -> None:
        self.asked: list[Instance] = []

    def get(self, instance: Instance) -> Any:
        self.asked.append(instance)
        return "channel"


def context(target: Target | None = None, **headers: Any) -> tuple[Context, FakeChannels]:
    channels = FakeChannels()
    request = ScriptRequest(target or Target("half"), b"", **headers)
    worker = WorkerModels(DataPlane(FakeUpstream()), deployment("half"), channels)  # type: ignore[arg-type]
    return Context(request, INSTANCE, worker), channels


def test_replace_as_of_a_named_tuple() -> None:
    """A copy has the new values, the channel's too; other names are refused, and the old one stays."""
    seen, channels = context()

    other = seen._replace(accept_header="text/csv", channel="mine")

    assert (other.accept_header, other[5], other.model_name) == ("text/csv", "mine", "half")
    assert (seen.accept_header, channels.asked) == ("application/json", [])
    with pytest.raises(ValueError, match=r"unexpected field names: \['accepts'\]"):
        seen._replace(accepts="text/csv")


def test_channel_is_lazy() -> None:
    """One instance for both; no channel is opened before one is asked for."""
    seen, channels = context()
    assert "model_name='half'" in repr(seen)
    assert channels.asked == []

    assert seen.channel == "channel"

    assert channels.asked == [INSTANCE]


@pytest.mark.parametrize("given", ["a" * 1025, "a\r\nb", "\u00e9", {"a": "\n"}])
def test_custom_attributes_that_can_not_be_sent(given: Any) -> None:
    seen, _ = context()

    with pytest.raises(ValueError, match="custom attributes"):
        seen.set_custom_attributes(given)
