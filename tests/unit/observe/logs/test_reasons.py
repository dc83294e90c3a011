"""The reason of a refusal, for the log."""

import pytest

from tfs_proxy.observe.logs.reasons import own_reason


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ('Record 3, input "x": "a\\"b" can\'t be read', "Record 3, input …: … can't be read"),
        ("invalid tfs-method 'it\\'s': one of a, b", "invalid tfs-method …: one of a, b"),
        ('cut inside of "a value', "cut inside of …"),
        ("two\n  lines", "two lines"),
        ("x" * 400, "x" * 299 + "…"),
    ],
)
def test_our_own_sentence_loses_what_it_quotes(sentence: str, reason: str) -> None:
    assert own_reason(sentence) == reason
