"""A model server with the models of many archives, as the requests for one of them may see it."""

import json

import pytest

from support.fake_upstream import FakeUpstream
from tfs_proxy.deployment import Deployment
from tfs_proxy.errors import UpstreamRefused
from tfs_proxy.signature import PREDICT_METHOD, Signature, Target
from tfs_proxy.upstream.for_deployment import ForDeployment

SIGNATURE = Signature("serving_default", PREDICT_METHOD, {}, {})
NAMES = {"two": "pair.two", "three": "pair.three"}
DEPLOYMENT = Deployment(
    "pair.three", {"pair.two": (1,), "pair.three": (1,)}, (), None, (), 1000, 1.0, inner_names=NAMES
)


@pytest.mark.parametrize("name", ["two", "pair.two"])
def test_a_model_has_the_name_of_the_archive_and_of_the_model_server(name: str) -> None:
    """Both lead to the same one."""
    upstream = FakeUpstream({"serving_default": SIGNATURE})

    answer = ForDeployment(upstream, DEPLOYMENT).predict(Target(name, version=1), b"{}")

    assert answer.status == 200
    assert [call.target for call in upstream.calls] == [Target("pair.two", version=1)]


@pytest.mark.parametrize("name", ["other", "pair", "three.two"])
def test_models_of_other_archives_are_not_there(name: str) -> None:
    """The model server is not even asked."""
    upstream = FakeUpstream({"serving_default": SIGNATURE})
    archive = ForDeployment(upstream, DEPLOYMENT)

    answer = archive.predict(Target(name), b"{}")
    with pytest.raises(UpstreamRefused) as refused:
        archive.signature(Target(name))

    assert answer.status == refused.value.status == 404
    assert f"Servable not found for request: Latest({name})" in json.loads(answer.body)["error"]
    assert upstream.calls == []
