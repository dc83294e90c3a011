"""The flags of ``pack`` for what goes into a model's graph, and their values as `Preprocessing`."""

import argparse
from pathlib import Path

from tfs_proxy.errors import SettingsError
from tfs_proxy.savedmodel_export.preprocessing import (
    DEFAULT_TOP,
    ImageInput,
    Preprocessing,
    read_labels,
    read_standardize,
)


def add_preprocessing_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that give the model a new ``serving_default``."""
    group = parser.add_argument_group("in the graph")
    group.add_argument(
        "--decode-image",
        metavar="HxW:MODE",
        help="read JPEG and PNG files, resized to H x W pixels; MODE is none (0..255, the default), scale "
        "(x/255), tf, torch or caffe (as Keras' preprocess_input), or 'mean=R,G,B;std=R,G,B' on 0..1",
    )
    group.add_argument(
        "--standardize",
        metavar="FILE",
        type=Path,
        help='subtract means from columns and divide by deviations: {"INPUT": {"mean": [...], "std": [...]}}',
    )
    group.add_argument(
        "--labels", metavar="FILE", type=Path, help="answer these labels, one a line, in the classes' order"
    )
    group.add_argument(
        "--top",
        metavar="K",
        type=int,
        help=f"how many labels to answer, the most probable first (default: {DEFAULT_TOP}); without "
        "--labels, numbers of classes",
    )
    group.add_argument("--softmax", action="store_true", help="turn the model's logits into probabilities")


def preprocessing_of(arguments: argparse.Namespace) -> Preprocessing | None:
    """What the flags ask for; None if they ask for nothing. Raises SettingsError."""
    if arguments.decode_image is not None and arguments.standardize is not None:
        raise SettingsError(
            "--decode-image and --standardize exclude each other: one is for pictures, one for tables."
        )
    if arguments.top is not None and arguments.top < 1:
        raise SettingsError(f"--top {arguments.top}: at least 1 label is answered.")
    preprocessing = Preprocessing(
        image=None if arguments.decode_image is None else ImageInput.parse(arguments.decode_image),
        standardize={} if arguments.standardize is None else read_standardize(arguments.standardize),
        labels=() if arguments.labels is None else read_labels(arguments.labels),
        top=arguments.top,
        softmax=arguments.softmax,
    )
    return None if preprocessing == Preprocessing() else preprocessing
