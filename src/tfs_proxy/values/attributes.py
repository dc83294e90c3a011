"""X-Amzn-SageMaker-Custom-Attributes -> `Target`, for the workers and, by the same table, for nginx."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from tfs_proxy.values.errors import BadInput
from tfs_proxy.values.names import HIGHEST_VERSION, LABEL, METHODS, MODEL, SHORT_VERSION, SIGNATURE, VERSION
from tfs_proxy.values.signature import Target

PREFIX = "tfs-"
"""Prefix of each attribute's name."""

_SHOWN_CHARACTERS = 80


class Attribute(Struct, frozen=True):
    """One ``key=value`` of the header, which fills a field of `Target`."""

    key: str
    """Name before the equals sign, such as ``tfs-model-name``."""

    field: str
    """Name of the field of `Target` that the value fills."""

    pattern: str
    """Regular expression that a value has to match as a whole."""

    certain: str
    """Pattern of values that `parse` takes for sure, by which nginx reads the header."""

    rule: str
    """Sentence, without a full stop, that tells a client which values are taken."""

    parse: Callable[[str], Any] = str
    """Function from the text to the field's value; it returns None for a value that it refuses."""

    def value(self, text: str) -> Any:
        """The field's value; raises BadInput."""
        value = self.parse(text) if re.fullmatch(self.pattern, text, re.ASCII) else None
        if value is None:
            raise BadInput(f"invalid {self.key} {text[:_SHOWN_CHARACTERS]!r}: {self.rule}")
        return value


# fmt: off
MODEL_NAME = Attribute("tfs-model-name", "model", MODEL, MODEL,
    "a name has up to 255 letters, digits, '.', '_' and '-', and begins with a letter or digit")
MODEL_VERSION = Attribute("tfs-model-version", "version", VERSION, SHORT_VERSION,
    "a version is a whole number of at most 63 bits",
    lambda text: int(text) if int(text) <= HIGHEST_VERSION else None)
METHOD = Attribute("tfs-method", "method", "|".join(METHODS), "|".join(METHODS),
    f"must be one of {', '.join(METHODS)}")
MODEL_LABEL = Attribute("tfs-model-label", "label", LABEL, LABEL,
    "a label has up to 255 letters, digits and '_'")
SIGNATURE_NAME = Attribute("tfs-signature-name", "signature", SIGNATURE, SIGNATURE,
    "a signature's name is printable ASCII without blanks")
# fmt: on
ATTRIBUTES: Mapping[str, Attribute] = {
    attribute.key: attribute for attribute in (MODEL_NAME, MODEL_VERSION, METHOD, MODEL_LABEL, SIGNATURE_NAME)
}
"""Attributes by key (docs/reference/aws-container.md); AWS's container has neither label nor signature."""


@lru_cache(maxsize=128)
def parse_target(header: str | None, default_model: str) -> Target:
    """Read the header's comma separated ``key=value`` pairs; those without the prefix are other programs'.

    A value may contain ``=``. Raises BadInput that names the attribute if one is malformed, empty or
    given twice, or if a version and a label come together.
    """
    if header is None or PREFIX not in header:
        return Target(default_model)
    fields: dict[str, Any] = {"model": default_model}
    seen: set[str] = set()
    for part in header.split(","):
        key, _, text = part.partition("=")
        attribute = ATTRIBUTES.get(key.strip())
        if attribute is None:
            continue
        if attribute.key in seen:
            raise BadInput(f"invalid {attribute.key}: it is given twice")
        seen.add(attribute.key)
        fields[attribute.field] = attribute.value(text.strip())
    if "version" in fields and "label" in fields:
        raise BadInput("tfs-model-version and tfs-model-label exclude each other: send one of them")
    return Target(**fields)


def attribute_pattern(key: str, value: str) -> str:
    """Pattern of a header whose first ``key=`` has a value that matches; for Python's ``re`` and nginx."""
    return rf"^(?:(?! *{key} *=)[^,]*+,)*+ *{key} *= *{value} *(?:,|$)"
