"""Decodes, resizes and scales pictures in a graph: what `added_signatures` puts before a network."""

from collections.abc import Mapping

import tensorflow as tf

from tfs_proxy.errors import ExportError
from tfs_proxy.savedmodel_export.preprocessing import LARGEST_SIDE, ImageInput

IMAGE = "image"
DECODED_CHANNELS = (1, 3, 4)
DEFAULT_CHANNELS = 3
FLAT_RANK, RANK = 3, 4
LARGEST_PIXEL = 255

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
PNG_SIZE_AT, PNG_SIZE_BYTES = 16, 8
MOST_PIXELS = LARGEST_SIDE * LARGEST_SIDE
"""A picture of a few kilobytes may claim gigabytes of pixels."""

SAMPLE_PICTURES = 2

Tensors = Mapping[str, tf.Tensor]
Specs = Mapping[str, tf.TensorSpec]


class ImageStage:
    """Strings of JPEG or PNG, of any sizes, become the one input of a network; ``specs`` are its inputs.

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
        self._check(sides)

    def tensors(self, inputs: Tensors) -> Tensors:
        """The network's input for a vector of strings."""
        strings = inputs[IMAGE]
        size = (self._image.height, self._image.width, self._channels)
        pictures = tf.map_fn(
            self._picture,
            (tf.range(tf.size(strings)), strings),
            fn_output_signature=tf.TensorSpec(size, tf.float32),
        )
        scaled = self._scaled(pictures)
        if self._is_channels_first:
            scaled = tf.transpose(scaled, (0, 3, 1, 2))
        if self._is_flat:
            scaled = scaled[..., 0]
        if self._spec.dtype.is_integer:
            scaled = tf.round(scaled)
        return {self._name: tf.cast(scaled, self._spec.dtype)}

    def sample(self) -> Tensors:
        """Pictures of noise, one of the network's size and one that is larger."""
        height, width = self._image.height, self._image.width
        count = self._spec.shape[0] or SAMPLE_PICTURES
        sizes = [(height + index, width + index, self._channels) for index in range(count)]
        return {IMAGE: tf.stack([_noise(size, seed) for seed, size in enumerate(sizes)])}

    def _picture(self, numbered: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        number, encoded = numbered
        with tf.control_dependencies([_refuse_large(number, encoded)]):
            decoded = tf.io.decode_image(encoded, self._channels, expand_animations=False)
        decoded.set_shape((None, None, self._channels))
        return tf.image.resize(decoded, (self._image.height, self._image.width), "bilinear")

    def _scaled(self, pictures: tf.Tensor) -> tf.Tensor:
        scaling = self._image.scaling
        pictures = pictures[..., ::-1] if scaling.is_bgr else pictures
        return (pictures / scaling.divisor - tf.constant(scaling.mean)) / tf.constant(scaling.std)

    def _fits(self, sides: list[int | None]) -> bool:
        """Whether these may be height, width and channels."""
        height, width, channels = sides
        return (
            height in (None, self._image.height)
            and width in (None, self._image.width)
            and channels in (None, *DECODED_CHANNELS)
        )

    def _check(self, sides: list[int | None]) -> None:
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
        if self._spec.dtype.is_integer and not scaling.is_none:
            raise ExportError(
                f"{flag} takes {self._spec.dtype.name}, which has no fractions: the mode must be none."
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
    if not numeric or spec.shape.rank not in (FLAT_RANK, RANK):
        raise ExportError(
            f"--decode-image: input {name} takes {_shown(spec)}; pictures are numbers from 0 to 255, of the "
            "shape (batch, height, width, channels)."
        )
    return spec, name


def _shown(spec: tf.TensorSpec) -> str:
    return f"{spec.dtype.name} of the shape {spec.shape}"


def _refuse_large(number: tf.Tensor, encoded: tf.Tensor) -> tf.Operation:
    """Fails for what is neither JPEG nor PNG, and for more pixels than a request may cost."""
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
    """A PNG file of random pixels."""
    pixels = tf.random.stateless_uniform(size, (seed, seed), 0, LARGEST_PIXEL + 1, tf.int32)
    return tf.io.encode_png(tf.cast(pixels, tf.uint8))
