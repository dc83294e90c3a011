"""Metrics of several servers as one text: each server's samples get a label that names it."""

from collections.abc import Mapping

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families


def merged(texts: Mapping[str, str], label: str) -> list[Metric]:
    """The metrics in ``texts``, Prometheus's text by server; ``label`` has the server's name.

    A text that can't be read is left out. Names that only Prometheus's old text allows, such as TensorFlow
    Serving's ``:tensorflow:serving:request_count``, become legal ones.
    """
    families: dict[str, Metric] = {}
    for server, text in texts.items():
        for family in _read(text):
            name = legal_name(family.name)
            known = families.setdefault(name, Metric(name, family.documentation, family.type))
            for sample in family.samples:
                labels = {**sample.labels, label: server}
                known.add_sample(legal_name(sample.name), labels, sample.value)
    return list(families.values())


def legal_name(name: str) -> str:
    """A name as OpenMetrics allows it."""
    return name.lstrip(":").replace(":", "_")


def _read(text: str) -> list[Metric]:
    try:
        return list(text_string_to_metric_families(text))
    except (ValueError, IndexError, KeyError):
        return []
