"""One running multi-model stack for all tests that add models of names of their own and take them away."""

from collections.abc import Iterator

import pytest

from support.archives import has_nginx
from support.multi_model import MultiModelStack, serving_many


@pytest.fixture(scope="session", params=["shared", "process"])
def many(request: pytest.FixtureRequest) -> Iterator[MultiModelStack]:
    """A multi-model endpoint in both modes, as SageMaker starts it: the embedded server behind nginx."""
    if not has_nginx():
        pytest.skip("nginx is not installed")
    with serving_many(env={"TFS_PROXY_MULTI_MODEL": request.param}) as running:
        yield running
