"""Links by which nginx finds a model that is ready."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tfs_proxy.run.nginx.many_models import links_of
from tfs_proxy.values.deployment import BodyLimits, CaptureOptions, Deployment, Observation, TimeLimits
from tfs_proxy.values.layout import Workspace

PLAIN = Deployment("a", {"a": (1,)}, (), None, (), BodyLimits(1), TimeLimits(1.0))


def linked(deployment: Deployment) -> dict[str, str]:
    """The links of the model a and their targets, relative to the run's folder."""
    run = Path("/run")
    links = links_of("a", deployment, Workspace(run), Workspace(run / "s/0"))
    return {str(link.relative_to(run)): str(target.relative_to(run)) for link, target in links.items()}


def test_a_model_without_a_script_is_found_at_the_common_workers() -> None:
    """JSON needs no worker; the link that says so comes last, the folder in which workers look first."""
    gates = dict.fromkeys(("m/a.sock", "m/a.served", "m/a.loaded"), "common.sock")

    assert list(linked(PLAIN).items()) == [
        ("d/a", "s/0"),
        *gates.items(),
        ("f/a", "s/0/deployment.json"),
    ]


def test_a_script_is_found_at_its_own_workers() -> None:
    gates = ("m/a.sock", "m/inner.sock", "m/inner.served", "m/a.loaded")

    assert linked(replace(PLAIN, script="inference.py", models={"inner": (1,)})) == dict.fromkeys(
        gates, "s/0/web.sock"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"default_model": "inner"},
        {"default_accept": "text/csv"},
        {"is_batch": True},
        {"observation": Observation(capture=CaptureOptions("/tmp", 100.0, of_many=True))},
    ],
)
def test_workers_answer_what_a_model_server_could_not(change: dict[str, object]) -> None:
    assert "f/a" not in linked(replace(PLAIN, **change))
