"""Which trace a request belongs to: three carriers in order, and nothing of what is malformed."""

import pytest

from tfs_proxy.observe.tracing.parents import (
    SAMPLED_FLAGS,
    TraceParent,
    header_pattern,
    parent_in,
    x_ray_pattern,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADER = f"00-{TRACE}-{SPAN}-01"
OTHER = f"00-{'1' * 32}-{'2' * 16}-00"
X_RAY = "Root=1-67891233-abcdef012345678912345678;Parent=463ac35c9f6413ad;Sampled=1"
PARENT = TraceParent(int(TRACE, 16), int(SPAN, 16), sampled=True)
BY_ATTRIBUTE = "x-amzn-sagemaker-custom-attributes"


@pytest.mark.parametrize("flags", ["00", "01", "02", "03", "ff"])
def test_the_lowest_bit_of_the_flags_samples(flags: str) -> None:
    """The others say something else, such as that the trace's id is random."""
    parent = parent_in({"traceparent": f"00-{TRACE}-{SPAN}-{flags}"})

    assert parent is not None
    assert parent.sampled == bool(int(flags, 16) & 1)
    assert (parent.trace_id, parent.span_id) == (PARENT.trace_id, PARENT.span_id)


@pytest.mark.parametrize(
    "hostile",
    [
        "",
        "x",
        HEADER.upper(),
        HEADER + "-more",
        HEADER + ",",
        HEADER + "\x00",
        f"{HEADER}, {HEADER}",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        "<script>alert(1)</script>",
        "0" * 20_000,
    ],
)
def test_a_malformed_traceparent_does_not_count(hostile: str) -> None:
    """The next carrier is looked at, and a new trace begins if none tells of one."""
    assert parent_in({"traceparent": hostile}) is None
    assert parent_in({BY_ATTRIBUTE: f"traceparent={hostile.partition(',')[0]}-"}) is None
    assert parent_in({"traceparent": hostile, "x-amzn-trace-id": X_RAY}) is not None


@pytest.mark.parametrize(
    "attributes",
    [
        f"traceparent={HEADER}",
        f"tfs-model-name=m, traceparent = {HEADER} ,b=c",
        f"a=traceparent=1,traceparent={HEADER},traceparent={OTHER}",
    ],
)
def test_custom_attributes_carry_a_parent(attributes: str) -> None:
    """SageMaker lets no other header of a tracer's through; the first one counts."""
    assert parent_in({BY_ATTRIBUTE: attributes}) == PARENT


@pytest.mark.parametrize(
    "header",
    [
        X_RAY,
        "Self=1-1-1;" + X_RAY.replace(";", "; "),
        ";".join(reversed(X_RAY.split(";"))),
        X_RAY + ";Lineage=a:1",
    ],
)
def test_x_ray_s_header_carries_a_parent(header: str) -> None:
    assert parent_in({"x-amzn-trace-id": header}) == TraceParent(
        0x67891233ABCDEF012345678912345678, 0x463AC35C9F6413AD, sampled=True
    )


def test_traceparent_comes_first_and_then_the_attributes() -> None:
    headers = {"traceparent": HEADER, BY_ATTRIBUTE: f"traceparent={OTHER}", "x-amzn-trace-id": X_RAY}

    assert parent_in(headers) == PARENT
    assert parent_in({**headers, "traceparent": "x"}) == TraceParent(
        int("1" * 32, 16), int("2" * 16, 16), sampled=False
    )


def test_the_patterns_of_what_is_sampled_are_narrower() -> None:
    """nginx decides by them."""
    import re

    assert re.match(header_pattern(SAMPLED_FLAGS), HEADER)
    assert not re.match(header_pattern(SAMPLED_FLAGS), OTHER)
    assert not re.match(x_ray_pattern("(1)"), X_RAY.replace("Sampled=1", "Sampled=0"))


def test_a_later_version_may_say_more() -> None:
    assert parent_in({"traceparent": f"01-{TRACE}-{SPAN}-01-more"}) == PARENT


def test_a_malformed_attribute_is_not_made_good_by_a_later_one() -> None:
    """nginx reads the header by the same rule."""
    assert parent_in({BY_ATTRIBUTE: f"traceparent=x,traceparent={HEADER}"}) is None


@pytest.mark.parametrize(
    "header",
    [
        "Root=1-67891233-abcdef012345678912345678",
        X_RAY.replace("=1;", "=?;") + "?",
        X_RAY.replace("Parent", "parent"),
    ],
)
def test_x_ray_s_header_without_a_span_or_a_decision_does_not_count(header: str) -> None:
    """A load balancer sends the root alone."""
    assert parent_in({"x-amzn-trace-id": header}) is None
