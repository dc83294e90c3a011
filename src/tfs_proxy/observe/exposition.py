"""Metrics as text: Prometheus's own format or OpenMetrics, as the Accept header asks.

prometheus_client writes our own metrics. The texts of other servers are joined to it line by line: a
model server shows thousands, of which its parser would take ten times as long (docs/explained/decisions.md).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from types import SimpleNamespace

from msgspec import Struct, field
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from tfs_proxy.observe.metric import MeasuredMetric, MetricKind
from tfs_proxy.values.names import utf8
from tfs_proxy.wire.media_types import OPEN_METRICS

_END = b"# EOF\n"

_FAMILIES: dict[MetricKind, type[CounterMetricFamily] | type[GaugeMetricFamily]] = {
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.GAUGE: GaugeMetricFamily,
}
_CERTAIN_ACCEPT = re.compile(
    r"(?:[a-z*]+/[a-z*.+-]+(?:; *(?:version=\d\.\d\.\d|charset=utf-8|q=[0-9.]+|escaping=[a-z-]+))*(?:, *|$))*"
)
_TYPE = re.compile(r"# TYPE ([a-zA-Z_:.][\w:.]*) (counter|gauge|histogram|summary|untyped)", re.ASCII)
_HELP = re.compile(r"# HELP ([a-zA-Z_:.][\w:.]*) (.*)", re.ASCII)
_LABEL = r'[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*"'
_SERIES = re.compile(rf"([a-zA-Z_:.][\w:.]*)(?:\{{((?:{_LABEL})(?:,{_LABEL})*)?,?\}})?", re.ASCII)
_VALUE = re.compile(r"[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|Inf)|NaN", re.ASCII)
_TIME = re.compile(r" -?[0-9]+$", re.ASCII)
_NAMED_LABEL = re.compile(r'([a-zA-Z_]\w*)="(?:[^"\\\n]|\\[\\"n])*"', re.ASCII)
_BOUND = re.compile(r'(?<![a-zA-Z0-9_])le="([^"]*)"')
_QUOTE = '\\"'
number: Callable[[float | str], str] = floatToGoString
_UNTYPED = "untyped"
_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("_sum", "_count"),
    "counter": ("_total",),
}
_IN_OPEN_METRICS = {_UNTYPED: "unknown"}


class MergedFamily(Struct):
    """One metric of several servers; ``name`` has no ``_total``, ``help`` is escaped as in Prometheus's."""

    name: str
    kind: str = _UNTYPED
    help: str = ""
    samples: list[str] = field(default_factory=list)

    def lines(self, *, open_metrics: bool) -> Iterator[str]:
        counts = self.kind == "counter" and not open_metrics
        name = f"{self.name}_total" if counts else self.name
        kind = _IN_OPEN_METRICS.get(self.kind, self.kind) if open_metrics else self.kind
        help_text = self.help.replace('"', _QUOTE) if open_metrics else self.help
        yield f"# HELP {name} {help_text}"
        yield f"# TYPE {name} {kind}"
        yield from self.samples


class MetricsText(Struct, frozen=True):
    """Answer to a scrape: a body and its media type."""

    body: bytes
    content_type: str


def expose(
    metrics: Iterable[MeasuredMetric], accept: str | None, others: Iterable[MergedFamily] = ()
) -> MetricsText:
    """Write ``metrics`` and the families of ``others`` for a client that sends ``accept``, any raw header."""
    certain = _CERTAIN_ACCEPT.fullmatch(accept or "")  # the library repeats the version that a client names
    encode, content_type = choose_encoder(certain[0] if certain else "")
    own = encode(SimpleNamespace(collect=lambda: map(_family, metrics)))
    end = _END if content_type.startswith(OPEN_METRICS) else b""
    lines = (line for family in others for line in family.lines(open_metrics=bool(end)))
    text = "".join(f"{line}\n" for line in lines).encode()
    return MetricsText(own.removesuffix(_END) + text + end, content_type)


def text_of(metrics: Iterable[MeasuredMetric]) -> str:
    return expose(metrics, None).body.decode()


def _family(metric: MeasuredMetric) -> Metric:
    description = metric.description
    if description.kind is MetricKind.HISTOGRAM:
        histogram = HistogramMetricFamily(description.name, description.help, labels=description.labels)
        for labels, of in (metric.distributions or {}).items():
            bounds = [*map(number, of.bounds), "+Inf"]
            buckets = list(zip(bounds, map(float, accumulate(of.counts)), strict=True))
            histogram.add_metric(labels, buckets, of.total)
        return histogram
    family = _FAMILIES[description.kind](description.name, description.help, labels=description.labels)
    for labels, value in (metric.points or {}).items():
        family.add_metric(labels, value)
    return family


def merged(texts: Mapping[str, str], label: str) -> list[MergedFamily]:
    """Join Prometheus's texts by server; ``label`` gets the server's name, unless it is empty.

    A line that can't be read is left out. Names that only Prometheus's old text allows, such as TensorFlow
    Serving's ``:tensorflow:serving:request_count``, become legal ones. A label that a sample has under the
    same name is called ``exported_NAME``, as by Prometheus itself.
    """
    families: dict[str, MergedFamily] = {}
    for server, text in texts.items():
        _Reader(families, f'{label}="{escaped(server)}"' if label else "", label).read(text)
    return [family for name, family in families.items() if name == family.name and family.samples]


def escaped(value: str) -> str:
    """Write the value of a label."""
    return utf8(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@lru_cache(4096)
def legal_name(name: str) -> str:
    """Replace characters that OpenMetrics does not allow in a name."""
    legal = name.lstrip(":.").replace(":", "_").replace(".", "_")
    return legal if legal[:1].isalpha() or legal[:1] == "_" else f"_{legal}"


class _Reader:
    """Parser that adds one server's text to ``families``; ``own`` is the label that its samples get."""

    def __init__(self, families: dict[str, MergedFamily], own: str, label: str) -> None:
        self._families = families
        self._own = own
        self._label = label
        self._kinds: dict[str, str] = {}
        self._helps: dict[str, str] = {}
        self._samples: dict[str, tuple[str, list[str]] | None] = {}

    def read(self, text: str) -> None:
        # NOTE: not splitlines, which breaks lines at characters that may stand in a label.
        for line in text.split("\n"):
            if line.startswith("#"):
                if described := _TYPE.fullmatch(line):
                    self._kinds[described[1]] = described[2]
                elif described := _HELP.fullmatch(line):
                    self._helps[described[1]] = described[2]
            else:
                self._add(line)

    def _add(self, line: str) -> None:
        series, _, value = line.rpartition(" ")
        read = _read_series(series, self._label)
        if read is None and _TIME.search(line):
            series, _, value = series.rpartition(" ")
            read = _read_series(series, self._label)
        if read is None or not _VALUE.fullmatch(value):
            return
        name = read[0]
        labels = f"{read[1]}{self._own}".removesuffix(",")
        if name not in self._samples:
            self._samples[name] = self._begin(name)
        if into := self._samples[name]:
            full_name, samples = into
            samples.append(f"{full_name}{{{labels}}} {value}" if labels else f"{full_name} {value}")

    def _begin(self, name: str) -> tuple[str, list[str]] | None:
        """The legal name of samples called ``name``, and their list; None if that name is of another kind."""
        described = name
        kind = self._kinds.get(name, "")
        suffix = ""
        if not kind:
            each = ((kind, suffix) for kind, suffixes in _SUFFIXES.items() for suffix in suffixes)
            fits = (
                (name.removesuffix(suffix), kind, suffix)
                for kind, suffix in each
                if name.endswith(suffix) and self._kinds.get(name.removesuffix(suffix)) == kind
            )
            described, kind, suffix = next(fits, (name, _UNTYPED, ""))
        base = legal_name(described)
        if kind == "counter":
            base = base.removesuffix("_total")
            suffix = "_total"
        family = self._families.get(base)
        if family is None:
            names = [base, *(base + each for each in _SUFFIXES.get(kind, ()))]
            help_text = self._helps.get(described) or f"The model server's own metric {described}."
            family = MergedFamily(base, kind, help_text)
            if self._families.keys().isdisjoint(names):
                self._families |= dict.fromkeys(names, family)
        return (base + suffix, family.samples) if (family.name, family.kind) == (base, kind) else None


# PERF: the series of a server are the same from scrape to scrape.
@lru_cache(32_768)
def _read_series(series: str, own_name: str) -> tuple[str, str] | None:
    """Name of a sample and its labels, a comma after each; a label named as our own is called ``exported_``.

    None if it can't be read, or a label occurs twice.
    """
    match = _SERIES.fullmatch(series)
    if match is None:
        return None
    matches = list(_NAMED_LABEL.finditer(match[2] or ""))
    labels = {label[1]: label[0] for label in matches}
    if len(labels) < len(matches):
        return None
    if own_name in labels:
        labels[f"exported_{own_name}"] = f"exported_{labels.pop(own_name)}"
    if match[1].endswith("_bucket") and "le" in labels:
        labels["le"] = _BOUND.sub(_canonical_bound, labels["le"])
    return match[1], "".join(f"{label}," for label in labels.values())


def _canonical_bound(bound: re.Match[str]) -> str:
    """Write a bucket's bound as Prometheus does, so that it is the same in both formats."""
    try:
        return f'le="{number(bound[1])}"'
    except ValueError:
        return bound[0]
