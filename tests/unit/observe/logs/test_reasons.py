"""The reason of a refusal, for the log."""

import pytest

from tfs_proxy.observe.logs.reasons import model_server_reason, own_reason
from tfs_proxy.values.errors import BadInput, from_client


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
    """With its escapes, and to the end if the quotation has none; an apostrophe is none."""
    assert own_reason(sentence) == reason


def test_a_client_s_text_without_quotation_marks_is_for_the_client_alone() -> None:
    """It can't end its mark by itself."""
    value = from_client("31415 \ue001 secret")
    error = BadInput(f"Row 1: {value} is out of range.")

    assert str(error) == "Row 1: 31415  secret is out of range."
    assert error.reason == "Row 1: … is out of range."


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ('JSON Value: {"a": 1} Type: Object', "JSON Value …"),
        (
            "Failed to process element: 0 key: secret of 'instances' list.",
            "Failed to process element: 0 key: …",
        ),
        ("could not correctly convert string: secret", "could not correctly convert string: …"),
        (
            "input tensor alias not found in signature: secret. Inputs",
            "input tensor alias not found in signature: …",
        ),
        (
            "input size does not match signature: 1!=2 len({secret})",
            "input size does not match signature: 1!=2 len …",
        ),
        ("Malformed request: POST /v1/models/m?secret", "Malformed request: POST /v1/models/m …"),
        ("Can't add shapes [?,3] and [2]", "Can't add shapes [?,3] and [2]"),
        ("", ""),
    ],
)
def test_a_model_server_s_sentence_ends_before_what_may_be_a_client_s(sentence: str, reason: str) -> None:
    """Its words, shapes and places are said up to there."""
    assert model_server_reason(sentence) == reason
