"""The group ``pipeline``: ports of containers that share a machine, and requests between them."""

from msgspec.structs import replace

from tfs_proxy.tools.conform.check import CheckGroup, NotRun, Occasion, RuleSource, Violation
from tfs_proxy.tools.conform.checks.invocations import expect_good
from tfs_proxy.tools.conform.judging import Judging
from tfs_proxy.tools.conform.target import Capability, StartFailed
from tfs_proxy.wire.media_types import JSON

GROUP = CheckGroup("pipeline", RuleSource.START_AND_STOP, Occasion.PIPELINE)
DEFAULT_PORT = 8080
MEND = "Read SAGEMAKER_BIND_TO_PORT: several containers share the machine, and 8080 is taken."


@GROUP.must("With SAGEMAKER_BIND_TO_PORT it answers ping on that port.")
def bind_to_port(judging: Judging) -> str:
    try:
        start = judging.start
    except StartFailed as error:
        raise Violation(
            expected=f"that it listens on port {judging.order.port}", got=str(error), mend=MEND
        ) from None
    if start.ready_seconds is None:
        raise Violation(expected=f"200 of ping on port {judging.order.port}", got=start.ping, mend=MEND)
    return f"port {judging.order.port}"


@GROUP.must("A good request is answered on that port.")
def invocations(judging: Judging) -> None:
    _ = judging.start
    expect_good(judging.post(judging.good))


@GROUP.must("Nothing of it listens on the default port then.")
def not_the_default_port(judging: Judging) -> None:
    if DEFAULT_PORT in _listening(judging):
        raise Violation(expected="port 8080 left to others", got="it listens there, too", mend=MEND)


@GROUP.must("Every port that it listens on is that one or in SAGEMAKER_SAFE_PORT_RANGE.")
def safe_port_range(judging: Judging) -> str:
    listening = _listening(judging)
    text = judging.order.env["SAGEMAKER_SAFE_PORT_RANGE"]
    low, high = map(int, text.split("-"))
    outside = sorted(port for port in listening - {judging.order.port} if not low <= port <= high)
    if outside:
        raise Violation(
            expected=f"ports {judging.order.port} and {text} alone",
            got=f"it listens on {', '.join(map(str, outside))}, too",
            mend="Take further ports from SAGEMAKER_SAFE_PORT_RANGE, or use unix sockets.",
        )
    return f"{len(listening)} ports"


@GROUP.should("Without Accept it answers as SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT says.", RuleSource.PIPELINES)
def default_accept(judging: Judging) -> None:
    _ = judging.start
    reply = expect_good(judging.post(replace(judging.good, accept=None)))
    if reply.content_type != JSON:
        raise Violation(
            expected=JSON,
            got=reply.content_type or "no Content-Type",
            mend="Containers of AWS read it.",
        )


@GROUP.should(
    "The image has the label com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true.",
    occasion=Occasion.RUNNING,
)
def label(judging: Judging) -> None:
    judging.expect_label(Capability.PIPELINE, "Add it to the Dockerfile.")


@GROUP.must("A request without Accept is answered.", RuleSource.PIPELINES, Occasion.RUNNING)
def no_accept(judging: Judging) -> str:
    reply = expect_good(judging.post(replace(judging.good, accept=None)))
    return reply.content_type


@GROUP.should(
    "A Content-Type with a parameter (charset=utf-8) is understood.", RuleSource.PIPELINES, Occasion.RUNNING
)
def content_type_parameters(judging: Judging) -> None:
    good = judging.good
    reply = judging.post(replace(good, content_type=f"{good.media_type}; charset=utf-8"))
    if not reply.is_good:
        raise Violation(
            expected="2xx, as without the parameter",
            got=reply.shown(),
            mend="Compare what stands before the semicolon: the container before this one may set a charset.",
        )


def _listening(judging: Judging) -> frozenset[int]:
    _ = judging.start
    ports = judging.container.listening()
    if ports is None:
        raise NotRun(
            "its ports can't be told from here: this needs /proc of its machine, and a network of its own"
        )
    return ports
