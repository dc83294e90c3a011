"""The app of an archive that was loaded at run time, whose requests nginx marks with a model's name."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tfs_proxy.wire.header_names import SERVED_NAME


@pytest.mark.parametrize("name", ["mine", "half"])
def test_requests_for_its_own_models_are_answered(make_front: Callable[..., Any], name: str) -> None:
    """By the name that it is loaded as, and by that of its model."""
    front = make_front(loaded_as="mine")

    assert front.post(b'{"instances": [1.0]}', **{SERVED_NAME: name}).status_code == 200


def test_a_request_for_another_archive_is_refused(make_front: Callable[..., Any]) -> None:
    """nginx may have looked before that went, and its place became this one's."""
    front = make_front(loaded_as="mine")

    answer = front.post(b'{"instances": [1.0]}', **{SERVED_NAME: "gone"})

    assert answer.status_code == 503
    assert json.loads(answer.content) == {"error": "model gone is being unloaded"}
    assert front.upstream.calls == []
