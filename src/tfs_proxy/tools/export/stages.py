"""Stages that are added to a model's graph: pictures are decoded, tables standardized, classes named."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfs_proxy.tools.export.preprocessing import (
    DEFAULT_TOP,
    LARGEST_SIDE,
    ImageInput,
    Preprocessing,
    Scaling,
    Standardization,
)
from tfs_proxy.values.errors import ExportError

IMAGE = "image"
DECODED_CHANNELS = (1, 3, 4)
DEFAULT_CHANNELS = 3
FLAT_RANK = 3
PICTURE_RANK = 4
LARGEST_PIXEL = 255

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8\xff"
PNG_SIZE_AT = 16
PNG_SIZE_BYTES = 8
MOST_PIXELS = LARGEST_SIDE * LARGEST_SIDE
"""A picture of a few kilobytes may declare gigabytes of pixels."""

SAMPLE_PICTURES = 2

Tensors = Mapping[str, tf.Tensor]
Specs = Mapping[str, tf.TensorSpec]


class ImageStage:
    """JPEG or PNG strings of any size become the network's only input; ``specs`` are its inputs.

    Raises ExportError if the network does not take such pictures.
    """

    def __init__(self, image: ImageInput, specs: Specs) -> None:
        self._image = image
        self._spec, self._name = _picture_input(specs)
        batch, *sides = self._spec.shape.as_list()
        self.signature: Specs = {IMAGE: tf.TensorSpec([batch], tf.string, IMAGE)}
        self._is_flat = len(sides) == FLAT_RANK - 1
        sides = [*sides, 1] if self._is_flat else sides
        self._is_channels_first = not self._fits(sides) and self._fits([*sides[1:], sides[0]])
        sides = [*sides[1:], sides[0]] if self._is_channels_first else sides
        self._channels = sides[2] or DEFAULT_CHANNELS
        flag = f"--decode-image {self._image.height}x{self._image.width}: input {self._name}"
        if not self._fits(sides):
            raise ExportError(
                f"{flag} takes {_shown(self._spec)}, not pictures of that size in 1, 3 or 4 channels."
            )
        scaling = self._image.scaling
        if scaling.channels not in (None, self._channels):
            raise ExportError(
                f"{flag} has {self._channels} channels, and the mode is for {scaling.channels}: give "
                "mean=...;std=... with a number for each."
            )
        if self._spec.dtype.is_integer and scaling != Scaling():
            raise ExportError(
                f"{flag} takes {self._spec.dtype.name}, which has no fractions: the mode must be none."
            )

    def tensors(self, inputs: Tensors) -> Tensors:
        strings = inputs[IMAGE]
        size = (self._image.height, self._image.width, self._channels)
        pictures = tf.map_fn(
            self._picture,
            (tf.range(tf.size(strings)), strings),
            fn_output_signature=tf.TensorSpec(size, tf.float32),
        )
        scaling = self._image.scaling
        pictures = pictures[..., ::-1] if scaling.is_bgr else pictures
        scaled = (pictures / scaling.divisor - tf.constant(scaling.mean)) / tf.constant(scaling.std)
        if self._is_channels_first:
            scaled = tf.transpose(scaled, (0, 3, 1, 2))
        if self._is_flat:
            scaled = scaled[..., 0]
        if self._spec.dtype.is_integer:
            scaled = tf.round(scaled)
        return {self._name: tf.cast(scaled, self._spec.dtype)}

    def sample(self) -> Tensors:
        """Pictures of noise: one of the network's size, and a larger one."""
        height = self._image.height
        width = self._image.width
        count = self._spec.shape[0] or SAMPLE_PICTURES
        sizes = [(height + index, width + index, self._channels) for index in range(count)]
        return {IMAGE: tf.stack([_noise(size, seed) for seed, size in enumerate(sizes)])}

    def _picture(self, numbered: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        number, encoded = numbered
        with tf.control_dependencies([_refuse_large(number, encoded)]):
            decoded = tf.io.decode_image(encoded, self._channels, expand_animations=False)
        decoded.set_shape((None, None, self._channels))
        return tf.image.resize(decoded, (self._image.height, self._image.width), "bilinear")

    def _fits(self, sides: list[int | None]) -> bool:
        """True if these may be height, width and channels."""
        height, width, channels = sides
        return (
            height in (None, self._image.height)
            and width in (None, self._image.width)
            and channels in (None, *DECODED_CHANNELS)
        )


def _picture_input(specs: Specs) -> tuple[tf.TensorSpec, str]:
    if len(specs) != 1:
        raise ExportError(
            f"--decode-image needs a model of one input; this one has {', '.join(sorted(specs)) or 'none'}."
        )
    ((name, spec),) = specs.items()
    if spec.shape.rank is None:
        raise ExportError(
            f"--decode-image: the shape of input {name} is unknown: save the model with an input of "
            "(batch, height, width, channels)."
        )
    numeric = spec.dtype.is_floating or (spec.dtype.is_integer and spec.dtype.max >= LARGEST_PIXEL)
    if not numeric or spec.shape.rank not in (FLAT_RANK, PICTURE_RANK):
        raise ExportError(
            f"--decode-image: input {name} takes {_shown(spec)}; pictures are numbers from 0 to 255, of the "
            "shape (batch, height, width, channels)."
        )
    return spec, name


def _shown(spec: tf.TensorSpec) -> str:
    return f"{spec.dtype.name} of the shape {spec.shape}"


def _refuse_large(number: tf.Tensor, encoded: tf.Tensor) -> tf.Operation:
    """An operation that fails for other formats, and for more pixels than a request may cost."""
    is_png = tf.strings.substr(encoded, 0, len(PNG)) == PNG
    is_png &= tf.strings.length(encoded) >= PNG_SIZE_AT + PNG_SIZE_BYTES
    is_jpeg = tf.strings.substr(encoded, 0, len(JPEG)) == JPEG
    unknown = tf.strings.format("image {} is neither a JPEG nor a PNG file", number)
    with tf.control_dependencies([tf.debugging.Assert(is_png | is_jpeg, [unknown])]):
        size = tf.cond(is_png, lambda: _png_size(encoded), lambda: _jpeg_size(encoded))
    pixels = size[0] * size[1]
    large = tf.strings.format(
        f"image {{}} has {{}} pixels, and at most {MOST_PIXELS} are decoded", (number, pixels)
    )
    return tf.debugging.Assert(pixels <= MOST_PIXELS, [large])


def _png_size(encoded: tf.Tensor) -> tf.Tensor:
    sides = tf.strings.substr(encoded, PNG_SIZE_AT, PNG_SIZE_BYTES)
    return tf.ensure_shape(tf.cast(tf.io.decode_raw(sides, tf.int32, little_endian=False), tf.int64), [2])


def _jpeg_size(encoded: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.image.extract_jpeg_shape(encoded, tf.int64)[:2], [2])


def _noise(size: tuple[int, int, int], seed: int) -> tf.Tensor:
    pixels = tf.random.stateless_uniform(size, (seed, seed), 0, LARGEST_PIXEL + 1, tf.int32)
    return tf.io.encode_png(tf.cast(pixels, tf.uint8))


SAMPLE_ROWS = 2


class TableStage:
    """``(x - mean) / std`` for the named inputs of a network; other inputs pass unchanged.

    Raises ExportError if an input does not exist, or has another number of columns.
    """

    def __init__(self, by_input: Mapping[str, Standardization], specs: Specs) -> None:
        # What a loaded signature calls its tensors is in small letters.
        self.signature = {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in specs.items()}
        self._constants = {name: _constants(name, each, specs) for name, each in by_input.items()}

    def tensors(self, inputs: Tensors) -> Tensors:
        return {name: self._standardized(name, tensor) for name, tensor in inputs.items()}

    def sample(self) -> Tensors | None:
        """Two rows near the means; None if the signature does not give the row's size."""
        if any(None in (spec.shape[1:] if spec.shape.rank else [None]) for spec in self.signature.values()):
            return None
        return {name: self._sample(name, spec) for name, spec in self.signature.items()}

    def _standardized(self, name: str, tensor: tf.Tensor) -> tf.Tensor:
        if name not in self._constants:
            return tensor
        mean, std = self._constants[name]
        return (tensor - mean) / std

    def _sample(self, name: str, spec: tf.TensorSpec) -> tf.Tensor:
        shape = [spec.shape[0] or SAMPLE_ROWS, *spec.shape[1:]]
        if not spec.dtype.is_floating:
            return tf.zeros(shape, spec.dtype)
        rows = tf.cast(tf.random.stateless_normal(shape, (0, 1)), spec.dtype)
        mean, std = self._constants.get(name, (0, 1))
        return rows * std + mean


def _constants(name: str, each: Standardization, specs: Specs) -> tuple[tf.Tensor, tf.Tensor]:
    if name not in specs:
        raise ExportError(
            f"--standardize: the model has no input {name}; it has {', '.join(sorted(specs)) or 'none'}."
        )
    dtype = specs[name].dtype
    if not dtype.is_floating:
        raise ExportError(f"--standardize: input {name} takes {dtype.name}; only floats are standardized.")
    shape = specs[name].shape
    if shape.rank is None:
        raise ExportError(
            f"--standardize: the shape of input {name} is unknown: save the model with its columns."
        )
    columns = shape[-1] if shape.rank > 1 else 1
    numbers = len(each.mean)
    if columns is None and numbers > 1:
        raise ExportError(
            f"--standardize: {name} has {numbers} means, and the input any number of columns: give one, or "
            "save the model with its columns."
        )
    if numbers not in (1, columns):
        raise ExportError(f"--standardize: {name} has {numbers} means, and the input {columns} columns.")
    with np.errstate(over="ignore"):
        mean = np.array(each.mean, dtype.as_numpy_dtype)
        std = np.array(each.std, dtype.as_numpy_dtype)
    if not np.all(np.isfinite(mean) & np.isfinite(std) & (std > 0)):
        raise ExportError(
            f"--standardize: {name} has a number that is too large or too small for {dtype.name}."
        )
    return tf.constant(mean), tf.constant(std)


LABELS = "labels"
PROBABILITIES = "probabilities"
SCORES_RANK = 2
TOLERANCE = 1e-2


class LabelStage:
    """The most probable classes of each row by name; ``outputs`` are the network's.

    Without labels and ``top`` only the softmax is applied. Raises ExportError if the output does not fit the
    labels.
    """

    def __init__(self, preprocessing: Preprocessing, outputs: Specs) -> None:
        self._softmax = preprocessing.softmax
        self._ranks = bool(preprocessing.labels) or preprocessing.top is not None
        self._name = next(iter(outputs))
        self._asked = preprocessing.top
        if not self._ranks and not self._softmax:
            return
        if len(outputs) != 1:
            raise ExportError(
                f"--labels, --top and --softmax need a model of one output; this one has "
                f"{', '.join(sorted(outputs))}."
            )
        spec = outputs[self._name]
        if not spec.dtype.is_floating or spec.shape.rank not in (SCORES_RANK, None):
            raise ExportError(
                f"--labels, --top and --softmax: output {self._name} is {spec.dtype.name} of the shape "
                f"{spec.shape}, not a row of floats for each picture or record."
            )
        if not self._ranks:
            return
        self._classes = _classes(self._name, spec, preprocessing.labels)
        self._top = min(preprocessing.top or DEFAULT_TOP, self._classes)
        self._labels = tf.constant(preprocessing.labels) if preprocessing.labels else None

    def tensors(self, answer: Tensors) -> Tensors:
        if not self._ranks and not self._softmax:
            return answer
        scores = answer[self._name]
        scores = tf.nn.softmax(scores) if self._softmax else scores
        if not self._ranks:
            return {self._name: scores}
        values, classes = tf.math.top_k(tf.ensure_shape(scores, [None, self._classes]), self._top)
        labels = tf.cast(classes, tf.int64) if self._labels is None else tf.gather(self._labels, classes)
        return {LABELS: labels, PROBABILITIES: values}

    def warnings(self, answer: Tensors) -> Sequence[str]:
        """Warnings on the network's answer to a sample.

        Raises ExportError if it has another number of classes than there are labels.
        """
        warnings: list[str] = []
        if self._ranks:
            _check_count(self._name, answer[self._name].shape, self._classes)
        if self._ranks and (self._asked or 0) > self._classes:
            warnings.append(
                f"--top {self._asked}: the model has {self._classes} classes, and answers as many."
            )
        if self._ranks or self._softmax:
            warnings += filter(None, [self._doubt(np.asarray(answer[self._name], np.float64))])
        return warnings

    def _doubt(self, scores: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> str | None:
        sums = scores.sum(axis=-1)
        furthest = sums.flat[np.argmax(np.abs(sums - 1))]
        are_probabilities = scores.min() >= 0 and abs(furthest - 1) <= TOLERANCE
        if self._softmax and are_probabilities:
            return (
                f"--softmax: the rows of output {self._name} sum to 1 on a sample, so they may be "
                "probabilities already, which a softmax distorts: leave the flag out then."
            )
        if self._softmax or are_probabilities:
            return None
        return (
            f"The rows of output {self._name} are not probabilities on a sample (the lowest number is "
            f"{scores.min():.3g}, one row sums to {furthest:.3g}): if they are logits, add --softmax."
        )


def _classes(name: str, spec: tf.TensorSpec, labels: Sequence[str]) -> int:
    """Number of classes; the signature need not say it if there are labels."""
    classes: int | None = spec.shape[-1] if spec.shape.rank == SCORES_RANK else None
    if classes is None and not labels:
        raise ExportError(
            f"--top and --softmax: how many classes output {name} has is unknown; give --labels."
        )
    if labels and classes is not None:
        _check_count(name, spec.shape, len(labels))
    return len(labels) or classes or 0


def _check_count(name: str, shape: tf.TensorShape, labels: int) -> None:
    if shape.rank != SCORES_RANK:
        raise ExportError(
            f"--labels and --top: output {name} answers the shape {shape}, not rows of classes."
        )
    if shape[-1] != labels:
        hint = " (a sigmoid's one column has no label for the other class)" if shape[-1] == 1 else ""
        raise ExportError(f"--labels has {labels} labels, and output {name} {shape[-1]} classes{hint}.")
