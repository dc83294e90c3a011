"""What a container says that it can do: by labels of its image, by the requests file, or by a flag."""

from collections.abc import Mapping
from enum import Enum

LABEL_PREFIX = "com.amazonaws.sagemaker.capabilities."


class Capability(Enum):
    """Something that not every container can, so it is only judged if the container says so."""

    MULTI_MODEL = "multi-model"
    PIPELINE = "pipeline"
    WEBSOCKET = "websocket"

    @property
    def label(self) -> str:
        """The label by which an image says so."""
        return LABEL_PREFIX + LABELS[self]


LABELS = {
    Capability.MULTI_MODEL: "multi-models",
    Capability.PIPELINE: "accept-bind-to-port",
    Capability.WEBSOCKET: "bidirectional-streaming",
}


def of_labels(labels: Mapping[str, str]) -> frozenset[Capability]:
    """What the labels of an image say."""
    return frozenset(each for each in Capability if labels.get(each.label, "").lower() == "true")
