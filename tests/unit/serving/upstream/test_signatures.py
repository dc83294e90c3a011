"""Signatures by version: asked once, followed where no version is named, forgotten when told."""

from tfs_proxy.data.serving_json.requests import Metadata
from tfs_proxy.serving.upstream.rest import FOLLOW_SECONDS, Signatures
from tfs_proxy.values.signature import PREDICT_METHOD, Signature, Target


class Server:
    """A model server with one model, whose newest version and time a test moves."""

    def __init__(self) -> None:
        self.newest: int = 1
        self.now = 0.0
        self.asked: list[Target] = []
        self.signatures = Signatures(self.metadata, lambda: self.now)

    def metadata(self, target: Target) -> Metadata:
        self.asked.append(target)
        version = target.version or self.newest
        return Metadata(version, {"serving_default": Signature(f"v{version}", PREDICT_METHOD, {}, {})})

    def name(self, target: Target) -> str:
        return self.signatures.get(target).name


NEWEST, FIRST = Target("m"), Target("m", version=1)


def test_no_version_follows_the_newest() -> None:
    server = Server()
    assert server.name(NEWEST) == "v1"
    server.newest = 2
    assert server.name(NEWEST) == "v1"
    server.now += FOLLOW_SECONDS
    assert server.name(NEWEST) == "v2"
    server.newest = 3
    server.signatures.answered(NEWEST, 2)
    assert server.name(NEWEST) == "v2"
    server.signatures.answered(FIRST, 1)
    server.signatures.answered(NEWEST, 3)
    assert server.name(NEWEST) == "v3"


def test_forgetting() -> None:
    """Other models are not asked again."""
    server = Server()
    for target in (FIRST, Target("other", version=1)):
        server.name(target)
    server.signatures.forget("m")
    for target in (FIRST, Target("other", version=1)):
        server.name(target)
    assert [target.model for target in server.asked] == ["m", "other", "m"]
    server.signatures.forget()
    server.name(FIRST)
    assert len(server.asked) == 4
