"""Preprocessing to add to a model's graph, as values: from the command line to the export process."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from msgspec import Struct, field

from tfs_proxy.values.errors import SettingsError

LARGEST_SIDE: Final = 8192
DEFAULT_TOP: Final = 5
MAX_LABELS_BYTES: Final = 64 * 1024 * 1024
MAX_STANDARDIZE_BYTES: Final = 64 * 1024 * 1024

IMAGENET_MEAN: Final = (0.485, 0.456, 0.406)
IMAGENET_STD: Final = (0.229, 0.224, 0.225)
CAFFE_MEAN: Final = (103.939, 116.779, 123.68)
# Keras' preprocess_input has these three; the last takes channels in the order blue, green, red.

_SIZE = re.compile(r"(?P<height>[1-9]\d{0,4})x(?P<width>[1-9]\d{0,4})(?::(?P<mode>.+))?")
_NUMBERS = re.compile(r"mean=(?P<mean>[^;]+);std=(?P<std>[^;]+)")
FLAGS: Final = "--decode-image, --standardize, --labels, --top and --softmax"
FORM: Final = "HxW[:MODE], with MODE none, scale, tf, torch, caffe or 'mean=R,G,B;std=R,G,B'"


class Scaling(Struct, frozen=True):
    """Scale of the network for channels of 0 to 255: ``(x / divisor - mean) / std``.

    ``mean`` and ``std`` have a number for each channel, or one for all. If ``is_bgr``, the channels are
    reversed first.
    """

    divisor: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    is_bgr: bool = False

    @property
    def channels(self) -> int | None:
        """Number of channels; None for any."""
        counts = {len(self.mean), len(self.std)} - {1}
        return max(counts, default=None)


SCALINGS: Final[Mapping[str, Scaling]] = {
    "none": Scaling(),
    "scale": Scaling(255.0),
    "tf": Scaling(127.5, (1.0,)),
    "torch": Scaling(255.0, IMAGENET_MEAN, IMAGENET_STD),
    "caffe": Scaling(1.0, CAFFE_MEAN, is_bgr=True),
}


class ImageInput(Struct, frozen=True):
    """Pictures are decoded and resized to ``height`` x ``width`` pixels, then scaled."""

    height: int
    width: int
    scaling: Scaling = field(default_factory=Scaling)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``HxW[:MODE]``. Raises SettingsError."""
        form = _SIZE.fullmatch(text)
        if form is None:
            raise SettingsError(f"--decode-image {text!r} is not {FORM}.")
        height = int(form["height"])
        width = int(form["width"])
        if max(height, width) > LARGEST_SIDE:
            raise SettingsError(f"--decode-image {text!r}: a side has at most {LARGEST_SIDE} pixels.")
        return cls(height, width, _scaling(form["mode"] or "none"))


class Standardization(Struct, frozen=True):
    """``(x - mean) / std`` for the last axis of an input; one number of each stands for all columns."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class Preprocessing(Struct, frozen=True):
    """Stages that a model's graph gets before and behind the network."""

    image: ImageInput | None = None
    """Decoder of pictures; None for none."""

    standardize: Mapping[str, Standardization] = field(default_factory=dict)
    """Means and deviations of the inputs of tables, by input name."""

    labels: tuple[str, ...] = ()
    """Names of the last axis of the output; none for its numbers."""

    top: int | None = None
    """Number of most probable labels that are answered; None for `DEFAULT_TOP` if there are labels."""

    softmax: bool = False
    """True if logits are turned into probabilities before."""


def read_labels(path: Path) -> tuple[str, ...]:
    """Labels of a file with one a line. Raises SettingsError."""
    lines = _text_of(path, "--labels", MAX_LABELS_BYTES).split("\n")
    labels = tuple(line.removesuffix("\r") for line in lines)
    labels = labels[:-1] if labels[-1] == "" else labels
    if not labels:
        raise SettingsError(f"--labels {path} is empty: it has one label a line.")
    for number, label in enumerate(labels, 1):
        if not label.strip():
            raise SettingsError(f"--labels {path}, line {number}, is empty: each line is a label.")
    return labels


def read_standardize(path: Path) -> Mapping[str, Standardization]:
    """Means and standard deviations by input name. Raises SettingsError."""
    try:
        inputs = json.loads(_text_of(path, "--standardize", MAX_STANDARDIZE_BYTES))
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"--standardize {path} is not JSON: {error}.") from None
    if not isinstance(inputs, dict) or not inputs:
        raise SettingsError(f'--standardize {path} is not {{"INPUT": {{"mean": [...], "std": [...]}}}}.')
    return {name: _standardization(f"--standardize {path}, {name}", each) for name, each in inputs.items()}


def _standardization(place: str, fields: object) -> Standardization:
    if not isinstance(fields, dict) or fields.keys() != {"mean", "std"}:
        raise SettingsError(f'{place} is not {{"mean": [...], "std": [...]}}.')
    numbers = []
    for key in ("mean", "std"):
        values = fields[key] if isinstance(fields[key], list) else [fields[key]]
        if not values:
            raise SettingsError(f"{place}, {key} is empty.")
        numbers.append(tuple(_finite(f"{place}, {key}", each) for each in values))
    mean, std = numbers
    if len(mean) != len(std):
        raise SettingsError(f"{place}: mean has {len(mean)} numbers and std {len(std)}.")
    _refuse_zero(f"{place}, std", std)
    return Standardization(mean, std)


def _finite(place: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingsError(f"{place}: {value!r:.80} is not a number.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise SettingsError(f"{place}: {value!r:.80} is not a finite number.")
    return number


def _scaling(mode: str) -> Scaling:
    if mode in SCALINGS:
        return SCALINGS[mode]
    form = _NUMBERS.fullmatch(mode)
    if form is None:
        raise SettingsError(f"--decode-image: {mode!r} is not a mode. The form is {FORM}.")
    mean, std = (_channel_numbers(key, form[key]) for key in ("mean", "std"))
    if len({len(mean), len(std)} - {1}) > 1:
        raise SettingsError(f"--decode-image: mean has {len(mean)} numbers and std {len(std)}.")
    _refuse_zero("--decode-image: std", std)
    return Scaling(255.0, mean, std)


def _channel_numbers(key: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(_finite(f"--decode-image: {key}", float(number)) for number in text.split(","))
    except ValueError:
        raise SettingsError(f"--decode-image: {key}={text} is not numbers separated by commas.") from None


def _refuse_zero(place: str, numbers: Sequence[float]) -> None:
    if any(number <= 0 for number in numbers):
        raise SettingsError(f"{place} has a number that is not above 0, and values are divided by it.")


def _text_of(path: Path, flag: str, max_bytes: int) -> str:
    try:
        if path.stat().st_size > max_bytes:
            raise SettingsError(f"{flag} {path} is larger than {max_bytes >> 20} MB.")
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{flag} {path} is not UTF-8: byte {error.start} is none.") from None
    except OSError as error:
        raise SettingsError(f"{flag} {path} can't be read: {error.strerror}.") from None
